//! Reads a history once and says what there is to draw. (Being built.)
