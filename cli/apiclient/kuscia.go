package apiclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"slipway.io/slipway/api/kuscia"
	"slipway.io/slipway/cli/render"
)

// protobufPrefix is what protobuf's errors begin with, a blank that varies included.
var protobufPrefix = regexp.MustCompile(`^proto:\s+(syntax error )?(\(line [0-9:]+\):\s*)?`)

// ProtoJSONCause is what is wrong with a message. Lines are left out: they are not those of a file that was YAML, or whose document
// is not the first.
func ProtoJSONCause(err error) string {
	return render.OneLine(protobufPrefix.ReplaceAllString(strings.ReplaceAll(err.Error(), "\u00a0", " "), ""))
}

// KusciaError is what Kuscia's API says went wrong; HTTP says 200 to it.
type KusciaError struct {
	Code          int
	message, hint string
}

func (e *KusciaError) Error() string {
	return fmt.Sprintf("%s (code %d)", render.OneLine(e.message), e.Code)
}

// kusciaHints say what to do about a message of Kuscia's API: its codes tell operations apart, and only its words what is wrong.
var kusciaHints = []struct{ words, hint string }{
	{"kusciadeployments.kuscia.secretflow", "`slipway serving list` shows the servings that there are."},
	{"can not get appimage", "Register the AppImage first: kubectl apply -f FILE, or slipway appimage apply -f FILE."},
	{"appimages.kuscia.secretflow", "`slipway appimage list` shows the AppImages that there are."},
	{"serving \"", "Change it with `slipway serving update -f FILE`, or choose another serving_id. One that was deleted is gone " +
		"when its parties are cleaned up."},
	{"is not known: create a Party", "`slipway party list` shows the parties that there are."},
	{"does not exist", "An update changes parties that the serving has; to add or remove one, use kubectl apply."},
}

// Codes of Kuscia's API that the command line treats apart.
const (
	kusciaCodeMalformed      = 11100
	kusciaCodeUnexpected     = 11101
	KusciaCodeAppImageExists = 13106
)

// newKusciaError adds to what is wrong what to do about it.
func newKusciaError(code int, message string) *KusciaError {
	e := &KusciaError{Code: code, message: message}
	for _, h := range kusciaHints {
		if strings.Contains(message, h.words) {
			e.hint = h.hint
			return e
		}
	}
	switch code {
	case kusciaCodeMalformed:
		e.hint = "Nothing was changed: correct the request and send it again."
	case kusciaCodeUnexpected:
		e.hint = "The engine's log has more."
	}
	return e
}

type kusciaAnswer struct {
	Status *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"status"`
	Data json.RawMessage `json:"data"`
}

// kusciaRefusal is the error of Kuscia's API that a body holds which is no success for HTTP either; nil when it holds none.
func kusciaRefusal(body []byte) error {
	var answer kusciaAnswer
	if json.Unmarshal(body, &answer) != nil || answer.Status == nil || answer.Status.Code == 0 {
		return nil
	}
	return newKusciaError(answer.Status.Code, answer.Status.Message)
}

// KusciaData takes the answer of a call of Kuscia's API apart.
func KusciaData(response *http.Response, err error) (json.RawMessage, error) {
	answer, err := Read[kusciaAnswer](response, err)
	var stranger *strangerError
	if errors.As(err, &stranger) && strings.HasPrefix(stranger.status, fmt.Sprint(http.StatusUnauthorized)) {
		return nil, fmt.Errorf("the engine wants the token of Kuscia's API, and --token-file gave none or another: give the file that " +
			"the engine has as --kuscia-token-file")
	}
	switch {
	case err != nil:
		return nil, err
	case answer.Value.Status == nil:
		return nil, strangerAt(response.Request.URL.String(), response)
	case answer.Value.Status.Code != 0:
		return nil, newKusciaError(answer.Value.Status.Code, answer.Value.Status.Message)
	}
	return answer.Value.Data, nil
}

// ReadKuscia reads the data of an answer as one of Kuscia's messages.
func ReadKuscia(data json.RawMessage, into proto.Message) error {
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, into); err != nil {
		return fmt.Errorf("the answer cannot be read: %s", ProtoJSONCause(err))
	}
	return nil
}

// KusciaToken is the token of Kuscia's API, for an engine that asks for one.
type KusciaToken struct{ file string }

// Flags adds --token-file.
func (k *KusciaToken) Flags(command *cobra.Command) {
	command.Flags().StringVar(&k.file, "token-file", "",
		"`file` of the token of Kuscia's API, where the engine asks for one (--kuscia-protocol TLS or MTLS)")
	_ = command.MarkFlagFilename("token-file")
}

// Shown adds the token to a request.
func (k *KusciaToken) Shown(_ context.Context, request *http.Request) error {
	if k.file == "" {
		return nil
	}
	token, err := os.ReadFile(k.file)
	if err != nil {
		return fmt.Errorf("--token-file: %w", err)
	}
	request.Header.Set(kuscia.HeaderToken, strings.TrimRight(string(token), "\r\n"))
	return nil
}
