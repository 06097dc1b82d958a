// Package sealed says how payloads look that are encrypted.
package sealed

// Encoding is the encoding, in the metadata of a payload, of one that only who has its key can read. Temporal's own samples call it so.
const Encoding = "binary/encrypted"

// Unreadable is what is said of one whose key is missing here.
const Unreadable = "a payload is encrypted with a key that this process doesn't have: see --temporal-codec-key-dir and the log"
