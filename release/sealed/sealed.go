// Package sealed defines how encrypted payloads, and those that a process refuses to read, are marked.
package sealed

import "errors"

// Encoding is the encoding in the metadata of an encrypted payload. Temporal's samples use the same name.
const Encoding = "binary/encrypted"

// Unreadable is the message for a payload whose key this process does not have.
const Unreadable = "a payload is encrypted with a key that this process doesn't have: see --temporal-codec-key-dir " +
	"and the log"

// The encodings of what replaces a refused payload. A workflow stops at Refused, since its history may be readable to a
// process with other settings. A command of a user (RefusedCommand) is an error, which only that user gets.
const (
	Refused        = "binary/refused"
	RefusedCommand = "binary/refused-command"
)

// MetadataReason is the metadata entry with the reason why a payload was refused.
const MetadataReason = "refused-because"

// Refusal returns why the payload with this encoding and metadata was refused; nil if it was not.
func Refusal(encoding string, metadata map[string][]byte) error {
	if encoding != Refused && encoding != RefusedCommand {
		return nil
	}
	return errors.New(string(metadata[MetadataReason]))
}
