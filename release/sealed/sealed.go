// Package sealed defines how encrypted payloads are marked.
package sealed

// Encoding is the encoding in the metadata of an encrypted payload. Temporal's samples use the same name.
const Encoding = "binary/encrypted"

// Unreadable is the message for a payload whose key this process does not have.
const Unreadable = "a payload is encrypted with a key that this process doesn't have: see --temporal-codec-key-dir " +
	"and the log"
