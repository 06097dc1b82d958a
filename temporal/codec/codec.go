package codec

import (
	"crypto/rand"
	"errors"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"

	"slipway.io/slipway/release/sealed"
)

// metadataKeyID is the metadata entry with the key's ID; Temporal's own samples use the same name.
const metadataKeyID = "encryption-key-id"

// Codec encrypts and decrypts payloads. An encrypted payload consists of nonce and ciphertext of the whole payload,
// including its metadata; the key's ID is authenticated.
type Codec struct{ keys *Keys }

var _ converter.PayloadCodec = Codec{}

// New returns the codec of these keys.
func New(keys *Keys) Codec { return Codec{keys: keys} }

// Encode encrypts payloads with the current key. Encrypted payloads are unchanged.
func (c Codec) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	id, sealer := c.keys.current()
	if sealer == nil {
		return payloads, nil
	}
	result := make([]*commonpb.Payload, len(payloads))
	for i, payload := range payloads {
		if isSealed(payload) {
			result[i] = payload
			continue
		}
		plain, err := proto.Marshal(payload)
		if err != nil {
			return nil, fmt.Errorf("seal a payload: %w", err)
		}
		nonce := make([]byte, sealer.NonceSize(), sealer.NonceSize()+len(plain)+sealer.Overhead())
		_, _ = rand.Read(nonce) // it never fails (crypto/rand)
		result[i] = &commonpb.Payload{
			Metadata: map[string][]byte{converter.MetadataEncoding: []byte(sealed.Encoding), metadataKeyID: []byte(id)},
			Data:     sealer.Seal(nonce, nonce, plain, []byte(id)),
		}
	}
	return result, nil
}

// Decode decrypts payloads. Unencrypted ones are unchanged: they are older than the keys. So are those whose key is
// missing or wrong: they must not block the other payloads of a message, and a reader of one sees an unknown encoding.
func (c Codec) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	result := make([]*commonpb.Payload, len(payloads))
	for i, payload := range payloads {
		result[i] = payload
		if !isSealed(payload) {
			continue
		}
		opened, err := c.open(payload)
		if err != nil {
			c.keys.logError(err)
			continue
		}
		result[i] = opened
	}
	return result, nil
}

func (c Codec) open(payload *commonpb.Payload) (*commonpb.Payload, error) {
	id := string(payload.GetMetadata()[metadataKeyID])
	opener := c.keys.find(id)
	if opener == nil {
		return nil, fmt.Errorf("cannot decrypt a payload: the key %q is not in %s", id, c.keys.folder)
	}
	if len(payload.GetData()) < opener.NonceSize() {
		return nil, errors.New("cannot decrypt a payload: it is truncated")
	}
	nonce, closed := payload.GetData()[:opener.NonceSize()], payload.GetData()[opener.NonceSize():]
	plain, err := opener.Open(nil, nonce, closed, []byte(id))
	if err != nil {
		return nil, fmt.Errorf("cannot decrypt a payload with the key %q in %s: the file has a different key, or the "+
			"payload was modified", id, c.keys.folder)
	}
	opened := &commonpb.Payload{}
	if err := proto.Unmarshal(plain, opened); err != nil {
		return nil, fmt.Errorf("a payload decrypted with the key %q is invalid: %w", id, err)
	}
	return opened, nil
}

func isSealed(payload *commonpb.Payload) bool {
	return string(payload.GetMetadata()[converter.MetadataEncoding]) == sealed.Encoding
}
