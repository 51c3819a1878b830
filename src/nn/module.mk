libtrireme_a_SOURCES +=
