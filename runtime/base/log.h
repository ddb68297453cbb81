// Log messages. Never used on the launch path.
#pragma once

#include <string_view>

namespace dorajit {

enum class LogLevel : int { kOff = 0, kError = 1, kWarning = 2, kInfo = 3, kDebug = 4 };

// "off", "error", "warning", "info" or "debug".
std::string_view name(LogLevel level);

// Receives complete lines without a newline. May be called from any thread.
using LogSink = void (*)(LogLevel level, std::string_view message, void* context);

// Thread-safe. The default level is kWarning and the default sink is standard error.
void set_log_level(LogLevel level);
LogLevel log_level();
// A null sink restores standard error. `context` must stay valid until the last message.
void set_log_sink(LogSink sink, void* context);

void log(LogLevel level, std::string_view message);

// As log(), but only for the first message with this `key` in the process.
void log_once(LogLevel level, std::string_view key, std::string_view message);

}  // namespace dorajit
