"""The plug-in file of ms-swift, in a folder without other modules because ms-swift puts that into sys.path."""

import dorajit_autopatch

dorajit_autopatch.patch()
