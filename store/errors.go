package store

import (
	"context"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"slipway.io/slipway/release/failure"
)

// failed turns the API server's answer about one object ("plan shop") into a typed failure. A call that its own caller gave up stays what it is.
func failed(err error, object string) error {
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return err
	case apierrors.IsNotFound(err):
		return failure.New(failure.NotFound, "%s does not exist", object)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return failure.New(failure.Conflict, "%s was changed by somebody else in the meantime: read it again and repeat", object)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return failure.New(failure.Forbidden, "%s: the home cluster does not permit it: %v", object, err)
	case tooLarge(err):
		return failure.New(failure.Refused, "%s is too large for the home cluster to keep: split it up", object)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return failure.New(failure.Refused, "%s: the home cluster refuses it: %v", object, err)
	}
	return failure.New(failure.Unreachable, "%s: the home cluster cannot do it now: %v", object, err)
}

// tooLarge knows the limits: the API server's on a request's body, and etcd's on one object and on one message, which come back as internal errors.
func tooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) || strings.Contains(err.Error(), "etcdserver: request is too large") ||
		strings.Contains(err.Error(), "trying to send message larger than max")
}
