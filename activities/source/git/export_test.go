package git

// Decode is decode, for tests.
var Decode = decode
