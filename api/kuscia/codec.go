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

// The types of bodies.
const (
	typeJSON     = "application/json"
	typeJSONUTF8 = "application/json; charset=utf-8"
	typeProtobuf = "application/x-protobuf"
	typePlain    = "text/plain"
)

// maxBody is how large a request may be, in bytes, on HTTP and gRPC. What it asks for has to fit an object of the home cluster, which
// holds less.
const maxBody = 2 << 20

// form is how a request and its answer are written.
type form int

const (
	formJSON form = iota
	formProtobuf
	// formNone is that of any other type, that of an HTML form included: Kuscia finds none of its fields there, and nor does this.
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

// refuseBrowser refuses a body whose type a page of any site may send without being asked first, text/plain above all, if a browser sends
// it. Scripts that use such types are no browsers.
func refuseBrowser(r *http.Request) error {
	contentType := r.Header.Get("Content-Type")
	if strings.HasPrefix(contentType, typeJSON) || strings.HasPrefix(contentType, typeProtobuf) || !auth.FromBrowser(r.Header) {
		return nil
	}
	return invalid("a browser sent this request, with the Content-Type %q, which any page may send: send %s", contentType, typeJSON)
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

// decodeJSON reads JSON as protobuf does, fields that it does not know left aside. What protobuf does not take is read as encoding/json
// does, which takes repeated keys and text after the end, but no fields that it does not know; its errors are those that clients see.
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

// nullElement is the path of a null among the messages of a list, which only encoding/json lets through; "" when there is none.
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

// encodeJSON writes an answer as protobuf does, with the names of the .proto files and every field that has a default. protobuf puts
// blanks in at random, so that nobody relies on them; clients that look for `"code":0` do.
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

// frameworkError is the body of an answer to a request that no operation came to see. It has no details and no data, and is JSON also
// where the answer would have been protobuf.
func frameworkError(code int32, message string) []byte {
	raw, err := json.Marshal(map[string]any{"status": map[string]any{"code": code, "message": message}})
	if err != nil {
		panic(err) // a number and a string
	}
	return raw
}

// readBody reads a request's body; one that is too large is refused before it is read to its end.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, invalid("the body is larger than %d bytes: nothing so large can be kept; let the application fetch what is large",
			tooLarge.Limit)
	}
	return body, err
}
