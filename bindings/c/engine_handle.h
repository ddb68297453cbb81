// What a dorajit_engine is.
#pragma once

#include "bindings/composition.h"
#include "dorajit/dorajit.h"

struct dorajit_engine {
  dorajit::bindings::Composition composition;
};
