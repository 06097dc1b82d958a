package codec

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"slipway.io/slipway/release/sealed"
)

// metadataKeyID is the metadata entry with the key's ID; Temporal's own samples use the same name.
const metadataKeyID = "encryption-key-id"

// The metadata entries that name the place that keeps a payload. They are encrypted and authenticated with the payload:
// builds that do not know them read it all the same.
const (
	metadataNamespace = "slipway-namespace"
	metadataWorkflow  = "slipway-workflow-id"
)

// Codec encrypts and decrypts payloads whose place is unknown. An encrypted payload consists of nonce and ciphertext of
// the whole payload, including its metadata; the key's ID is authenticated.
type Codec struct{ keys *Keys }

var _ converter.PayloadCodec = Codec{}

// New returns the codec of these keys.
func New(keys *Keys) Codec { return Codec{keys: keys} }

// Encode encrypts payloads with the current key. Encrypted payloads are unchanged.
func (c Codec) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	return c.encode(payloads, place{})
}

// encode is Encode for payloads that a place keeps.
func (c Codec) encode(payloads []*commonpb.Payload, at place) ([]*commonpb.Payload, error) {
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
		plain, err := proto.Marshal(named(payload, at))
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

// named returns the payload with the place that keeps it, and with no other place that a client may have put there.
func named(payload *commonpb.Payload, at place) *commonpb.Payload {
	metadata := make(map[string][]byte, len(payload.GetMetadata())+2)
	maps.Copy(metadata, payload.GetMetadata())
	for name, value := range map[string]string{metadataNamespace: at.namespace, metadataWorkflow: at.workflow} {
		if delete(metadata, name); value != "" {
			metadata[name] = []byte(value)
		}
	}
	return &commonpb.Payload{Metadata: metadata, Data: payload.GetData(),
		ExternalPayloads: payload.GetExternalPayloads()}
}

// Decode decrypts payloads, whatever place they name. Unencrypted ones are unchanged: they are older than the keys. So
// are those whose key is missing or wrong: they must not block the other payloads of a message, and a reader of one
// sees an unknown encoding.
func (c Codec) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	result := make([]*commonpb.Payload, len(payloads))
	for i, payload := range payloads {
		result[i], _, _ = c.openNamed(payload)
	}
	return result, nil
}

// openNamed decrypts a payload and returns the place that it names. With an error, which is logged, it returns the
// payload unchanged.
func (c Codec) openNamed(payload *commonpb.Payload) (opened *commonpb.Payload, from place, err error) {
	if !isSealed(payload) {
		return payload, place{}, nil
	}
	if opened, err = c.open(payload); err != nil {
		c.keys.logError(err)
		return payload, place{}, err
	}
	from.namespace = string(opened.GetMetadata()[metadataNamespace])
	from.workflow = string(opened.GetMetadata()[metadataWorkflow])
	delete(opened.GetMetadata(), metadataNamespace)
	delete(opened.GetMetadata(), metadataWorkflow)
	return opened, from, nil
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

// NewDataConverter returns the default data converter with one difference: a workflow that gets a payload which this
// process cannot decrypt, or refuses, stops there until a process with the key or with other settings continues it. The
// SDK would fail it permanently with a decoding error.
func NewDataConverter() converter.DataConverter {
	return blockingConverter{DataConverter: converter.GetDefaultDataConverter()}
}

type blockingConverter struct {
	converter.DataConverter
	inWorkflow bool
}

var _ workflow.ContextAware = blockingConverter{}

// WithWorkflowContext returns the converter for workflow code.
func (c blockingConverter) WithWorkflowContext(workflow.Context) converter.DataConverter {
	c.inWorkflow = true
	return c
}

// WithContext returns the converter for all other code, where an error suffices.
func (c blockingConverter) WithContext(context.Context) converter.DataConverter { return c }

// FromPayload decodes one value.
func (c blockingConverter) FromPayload(payload *commonpb.Payload, into any) error {
	if err := c.check(payload); err != nil {
		return err
	}
	return c.DataConverter.FromPayload(payload, into)
}

// FromPayloads decodes several values.
func (c blockingConverter) FromPayloads(payloads *commonpb.Payloads, into ...any) error {
	if err := c.check(payloads.GetPayloads()...); err != nil {
		return err
	}
	return c.DataConverter.FromPayloads(payloads, into...)
}

// check returns why a payload was refused. In workflow code it panics on one that is encrypted, and on a refused one
// that is no command of a user: the SDK then fails the workflow task and retries it.
func (c blockingConverter) check(payloads ...*commonpb.Payload) error {
	for _, payload := range payloads {
		encoding := string(payload.GetMetadata()[converter.MetadataEncoding])
		if c.inWorkflow && encoding == sealed.Encoding {
			panic(sealed.Unreadable)
		}
		if err := sealed.Refusal(encoding, payload.GetMetadata()); err != nil {
			if c.inWorkflow && encoding == sealed.Refused {
				panic(err.Error())
			}
			return err
		}
	}
	return nil
}

// HandlerOptions configure who may decrypt payloads.
type HandlerOptions struct {
	// Origin is the Temporal UI's base URL. Of all web pages, only its pages are served.
	Origin string
	// Authenticate returns why a request is refused, as an error that has HTTPStatus and RetryAfter if the status is not
	// 401; nil: all requests are accepted.
	Authenticate func(*http.Request) error
}

// NewHandler serves POST /encode and POST /decode like Temporal's remote codecs
// (https://docs.temporal.io/codec-server), and browsers' CORS preflight requests.
func NewHandler(keys *Keys, o HandlerOptions) http.Handler {
	opened := converter.NewPayloadCodecHTTPHandler(New(keys))
	origin := originOf(o.Origin)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asking := r.Header.Get("Origin"); asking != "" {
			if asking != origin {
				http.Error(w, "requests from pages of "+asking+" are refused: only the Temporal UI at "+origin+
					" (--temporal-ui) may ask", http.StatusForbidden)
				return
			}
			allow(w.Header(), origin)
		}
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if o.Authenticate != nil {
			if err := o.Authenticate(r); err != nil {
				answerRefusal(w, err)
				return
			}
		}
		opened.ServeHTTP(w, r)
	})
}

func answerRefusal(w http.ResponseWriter, err error) {
	status := http.StatusUnauthorized
	refused, is := errors.AsType[interface {
		error
		HTTPStatus() int
		RetryAfter() string
	}](err)
	if is {
		status = refused.HTTPStatus()
		if after := refused.RetryAfter(); after != "" {
			w.Header().Set("Retry-After", after)
		}
	}
	http.Error(w, err.Error(), status)
}

// allow sets the CORS headers (https://fetch.spec.whatwg.org/#http-cors-protocol), also for a page on a public address
// when this server is on a private one (https://wicg.github.io/private-network-access).
func allow(h http.Header, origin string) {
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Allow-Methods", "POST, OPTIONS")
	h.Set("Access-Control-Allow-Headers", "Content-Type, X-Namespace, Authorization")
	h.Set("Access-Control-Allow-Credentials", "true")
	h.Set("Access-Control-Allow-Private-Network", "true")
}

// originOf returns the Origin header that browsers send for a URL.
func originOf(base string) string {
	parsed, err := url.Parse(base)
	if err != nil {
		return ""
	}
	origin := strings.ToLower(parsed.Scheme + "://" + parsed.Host)
	// browsers omit the default port
	return strings.TrimSuffix(origin, map[string]string{"http": ":80", "https": ":443"}[parsed.Scheme])
}
