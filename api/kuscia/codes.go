package kuscia

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/anypb"

	"slipway.io/slipway/api/kuscia/kusciapb"
)

// The codes of Kuscia's answers. There is none of its own for a serving that does not exist: its message says so.
const (
	codeSuccess            = 0
	codeRequestValidate    = 11100
	codeUnexpected         = 11101
	codeCreateServing      = 11600
	codeQueryServing       = 11601
	codeQueryServingStatus = 11602
	codeUpdateServing      = 11603
	codeDeleteServing      = 11604
	codeCreateAppImage     = 13100
	codeQueryAppImage      = 13101
	codeUpdateAppImage     = 13102
	codeDeleteAppImage     = 13103
	codeBatchQueryAppImage = 13104
	codeAppImageNotExists  = 13105
	codeAppImageExists     = 13106
	codeListAppImage       = 13107
)

// messageSuccess is the message of code 0.
const messageSuccess = "success"

// refusal is an error that has a code of its own; other errors get that of the operation.
type refusal struct {
	code    int32
	message string
}

func (r *refusal) Error() string { return r.message }

func refused(code int32, format string, args ...any) error {
	return &refusal{code: code, message: fmt.Sprintf(format, args...)}
}

// invalid refuses a request that no state of things could make good.
func invalid(format string, args ...any) error { return refused(codeRequestValidate, format, args...) }

// outcome is the status of an answer: success without an error, else the error's code or, where it has none, that of the operation.
func outcome(err error, operation int32) *kusciapb.Status {
	status := &kusciapb.Status{Code: codeSuccess, Message: messageSuccess, Details: []*anypb.Any{}}
	if err == nil {
		return status
	}
	status.Code, status.Message = operation, err.Error()
	var own *refusal
	if errors.As(err, &own) {
		status.Code = own.code
	}
	return status
}
