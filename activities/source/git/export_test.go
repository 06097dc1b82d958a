package git

// Decode exports decode to tests.
var Decode = decode
