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

// protobufPrefix matches the prefix of protobuf's errors. Its space is deliberately unstable (a space or U+00A0).
var protobufPrefix = regexp.MustCompile(`^proto:\s+(syntax error )?(\(line [0-9:]+\):\s*)?`)

// ProtoJSONCause returns what is wrong with a message, without the prefix and line number: the line is wrong for a
// converted YAML file and for a second document.
func ProtoJSONCause(err error) string {
	return render.OneLine(protobufPrefix.ReplaceAllString(strings.ReplaceAll(err.Error(), "\u00a0", " "), ""))
}

// KusciaError is an error of Kuscia's API, which returns it with HTTP status 200.
type KusciaError struct {
	Code          int
	message, hint string
}

func (e *KusciaError) Error() string {
	return fmt.Sprintf("%s (code %d)", render.OneLine(e.message), e.Code)
}

// kusciaHints say what to do next. They match the message, because one code of Kuscia's API covers all errors of an
// operation.
var kusciaHints = []struct{ words, hint string }{
	{"kusciadeployments.kuscia.secretflow", "`slipway serving list` lists the servings."},
	{"can not get appimage", "Register the AppImage first: kubectl apply -f FILE, or slipway appimage apply -f FILE."},
	{"appimages.kuscia.secretflow", "`slipway appimage list` lists the AppImages."},
	{"serving \"", "Change it with `slipway serving update -f FILE`, or choose another serving_id. A deleted serving " +
		"remains until its parties are cleaned up."},
	{"is not known: create a Party", "`slipway party list` lists the parties."},
	{"does not exist",
		"An update can only change existing parties of a serving; to add or remove one, use kubectl apply."},
}

// Codes of Kuscia's API that the CLI handles specially.
const (
	kusciaCodeMalformed      = 11100
	kusciaCodeUnexpected     = 11101
	KusciaCodeAppImageExists = 13106
)

// newKusciaError adds the hint for what to do next.
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
		e.hint = "Nothing was changed: correct the request and retry."
	case kusciaCodeUnexpected:
		e.hint = "See the engine's log for details."
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

// kusciaErrorIn returns the error of Kuscia's API in the body of an unsuccessful HTTP response; nil if there is none.
func kusciaErrorIn(body []byte) error {
	var answer kusciaAnswer
	if json.Unmarshal(body, &answer) != nil || answer.Status == nil || answer.Status.Code == 0 {
		return nil
	}
	return newKusciaError(answer.Status.Code, answer.Status.Message)
}

// KusciaData decodes the response of a call of Kuscia's API and returns its data.
func KusciaData(response *http.Response, err error) (json.RawMessage, error) {
	answer, err := Read[kusciaAnswer](response, err)
	var stranger *unexpectedResponseError
	if errors.As(err, &stranger) && strings.HasPrefix(stranger.status, fmt.Sprint(http.StatusUnauthorized)) {
		return nil, fmt.Errorf("the engine rejected the token of Kuscia's API: set --token-file to the file that the " +
			"engine uses as --kuscia-token-file")
	}
	switch {
	case err != nil:
		return nil, err
	case answer.Value.Status == nil:
		return nil, newUnexpectedResponse(response.Request.URL.String(), response)
	case answer.Value.Status.Code != 0:
		return nil, newKusciaError(answer.Value.Status.Code, answer.Value.Status.Message)
	}
	return answer.Value.Data, nil
}

// ReadKuscia decodes the data of a response into one of Kuscia's messages.
func ReadKuscia(data json.RawMessage, into proto.Message) error {
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, into); err != nil {
		return fmt.Errorf("cannot decode the response: %s", ProtoJSONCause(err))
	}
	return nil
}

// KusciaToken is the token of Kuscia's API. Only engines with --kuscia-protocol TLS or MTLS require one.
type KusciaToken struct{ file string }

// Flags adds --token-file.
func (k *KusciaToken) Flags(command *cobra.Command) {
	command.Flags().StringVar(&k.file, "token-file", "",
		"`file` with the token of Kuscia's API; required if the engine runs with --kuscia-protocol TLS or MTLS")
	_ = command.MarkFlagFilename("token-file")
}

// Authorize adds the token to a request.
func (k *KusciaToken) Authorize(_ context.Context, request *http.Request) error {
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
