package kuscia

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"slipway.io/slipway/api/auth"
)

// Media types of bodies.
const (
	typeJSON     = "application/json"
	typeJSONUTF8 = "application/json; charset=utf-8"
	typeProtobuf = "application/x-protobuf"
	typePlain    = "text/plain"
)

// maxBody is the maximum request size in bytes, on HTTP and gRPC. The content has to fit into an object of the home
// cluster, whose limit is lower.
const maxBody = 2 << 20

// form is the encoding of a request and its response.
type form int

const (
	formJSON form = iota
	formProtobuf
	// formNone is the form of all other types, including HTML forms: as in Kuscia, none of the request's fields are read
	// from them.
	formNone
)

func formOf(contentType string) form {
	switch {
	case contentType == "", contentType == typePlain, strings.HasPrefix(contentType, typeJSON):
		return formJSON
	case strings.HasPrefix(contentType, typeProtobuf):
		return formProtobuf
	}
	return formNone
}

// refuseBrowser refuses a request from a browser whose body type a page of any site may send without a CORS preflight,
// such as text/plain. Scripts may use these types.
func refuseBrowser(r *http.Request) error {
	contentType := r.Header.Get("Content-Type")
	if strings.HasPrefix(contentType, typeJSON) || strings.HasPrefix(contentType, typeProtobuf) ||
		!auth.FromBrowser(r.Header) {
		return nil
	}
	return invalid("a browser sent this request, with the Content-Type %q, which any page may send: send %s",
		contentType, typeJSON)
}

func decode(f form, body []byte, into proto.Message) error {
	switch f {
	case formJSON:
		return decodeJSON(body, into)
	case formProtobuf:
		return proto.Unmarshal(body, into)
	}
	return nil
}

// decodeJSON decodes JSON with protojson, ignoring unknown fields. If that fails, it decodes with encoding/json, which
// accepts repeated keys and trailing text, but no unknown fields; clients see the errors of encoding/json.
func decodeJSON(body []byte, into proto.Message) error {
	if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, into) == nil {
		return nil
	}
	proto.Reset(into)
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if path := nullElement(into.ProtoReflect()); path != "" {
		return fmt.Errorf("doBizProcess panic, err: %s is null", path)
	}
	return nil
}

// nullElement returns the path of a null in a list of messages, which only encoding/json accepts; "" if there is none.
func nullElement(message protoreflect.Message) (path string) {
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Kind() != protoreflect.MessageKind || field.IsMap():
		case field.IsList():
			for i := range value.List().Len() {
				element, name := value.List().Get(i).Message(), fmt.Sprintf("%s[%d]", field.Name(), i)
				if !element.IsValid() {
					path = name
					return false
				}
				if inner := nullElement(element); inner != "" {
					path = name + "." + inner
					return false
				}
			}
		default:
			if inner := nullElement(value.Message()); inner != "" {
				path = string(field.Name()) + "." + inner
			}
		}
		return path == ""
	})
	return path
}

// encodeJSON encodes a response as protojson does, with the field names of the .proto files and with default values.
// protojson inserts random blanks, which are removed: some clients search for `"code":0`.
func encodeJSON(answer proto.Message) ([]byte, error) {
	spread, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(answer)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, spread); err != nil {
		return nil, err
	}
	return compact.Bytes(), nil
}

// frameworkError is the response body for a request that reached no operation. It has no details and no data, and is
// JSON even for protobuf requests.
func frameworkError(code int32, message string) []byte {
	raw, err := json.Marshal(map[string]any{"status": map[string]any{"code": code, "message": message}})
	if err != nil {
		panic(err) // a number and a string
	}
	return raw
}

// readBody reads a request's body, and stops reading if it is too large.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, invalid("the body is larger than %d bytes: nothing so large can be kept; let the application "+
			"fetch what is large",
			tooLarge.Limit)
	}
	return body, err
}
