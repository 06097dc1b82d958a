package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
)

// failed turns the API server's answer about one object ("plan shop") into a typed failure. What says nothing of the home cluster stays
// untyped.
func failed(err error, object string) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if tooLarge(err) {
		return failure.New(failure.Refused, "%s is too large for the home cluster to keep: split it up", object)
	}
	switch kube.Classify(err) {
	case kube.Missing:
		return failure.New(failure.NotFound, "%s does not exist", object)
	case kube.Changed:
		return failure.New(failure.Conflict, "%s was changed by somebody else in the meantime: read it again and repeat", object)
	case kube.Forbidden:
		return failure.New(failure.Forbidden, "%s: the home cluster does not permit it: %s", object, kube.Text(err))
	case kube.Rejected, kube.Refused:
		return failure.New(failure.Refused, "%s: the home cluster refuses it: %s", object, kube.Text(err))
	case kube.Unreachable:
		return failure.New(failure.Unreachable, "%s: the home cluster cannot do it now: %s", object, kube.Text(err))
	case kube.Internal:
	}
	return fmt.Errorf("%s: %w", object, err)
}

// tooLarge knows the limits: the API server's on a request's body, and etcd's on one object and on one message, which come back as internal
// errors.
func tooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) || strings.Contains(err.Error(), "etcdserver: request is too large") ||
		strings.Contains(err.Error(), "trying to send message larger than max")
}
