package kube

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"slipway.io/slipway/release/phrase"
)

// Class is the reason why a request to an API server failed.
type Class int

// The classes.
const (
	// Internal: the error is neither from an API server nor from the connection to it, but for example from Temporal,
	// decoding, a cancelled context or a bug. It means nothing about any cluster.
	Internal Class = iota
	// Unreachable: the server did not answer, or without a decision; retry. System trouble.
	Unreachable
	// Forbidden: this process lacks the permission, or is not authenticated. System trouble.
	Forbidden
	// Missing: the object does not exist.
	Missing
	// Changed: the object has changed since the write was decided, or exists already; read it again.
	Changed
	// Rejected: the server does not accept the resulting object, or a test of the patch has failed.
	Rejected
	// Refused: a rule of the cluster (an admission webhook, a policy, a quota, pod security) forbids it, although this
	// process has the permission.
	Refused
)

// Classify returns the class of an error of a request to an API server. A 403 is Refused if an access review confirmed
// the permission (see Configure), and Forbidden otherwise.
func Classify(err error) Class {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		if unanswered(err) {
			return Unreachable
		}
		return Internal
	}
	switch code := status.Status().Code; {
	case code == http.StatusForbidden && permitted(status.Status()):
		return Refused
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return Forbidden
	case code == http.StatusNotFound:
		return Missing
	case code == http.StatusConflict, code == http.StatusGone: // 410: the list's next page has expired
		return Changed
	case code == http.StatusUnprocessableEntity, code == http.StatusBadRequest:
		return Rejected
	case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= http.StatusInternalServerError,
		code == 0:
		return Unreachable
	default:
		return Refused
	}
}

// CallTimeout is how long one request of an activity may take.
const CallTimeout = 5 * time.Second

// IsAny reports whether an error of a request to an API server has one of these classes.
func IsAny(err error, classes ...Class) bool {
	return err != nil && slices.Contains(classes, Classify(err))
}

// unanswered reports whether a request got no answer, or only a part of one.
func unanswered(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	var request *url.Error
	var network net.Error
	return errors.As(err, &request) || errors.As(err, &network) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		strings.Contains(err.Error(), bodyReadError) || strings.Contains(err.Error(), rateLimited)
}

// bodyReadError is client-go's text for a truncated answer: over HTTP/2 its error has no type of its own.
const bodyReadError = "error when reading response body"

// rateLimited is client-go's text for a request that would have waited too long for the rate limiter (Options.QPS).
const rateLimited = "client rate limiter Wait returned an error"

// causePermitted marks a 403 that an access review contradicts: this process has the permission, so a rule of the
// cluster refused the request.
const causePermitted metav1.CauseType = "slipway.io/permitted"

func permitted(status metav1.Status) bool {
	return status.Details != nil &&
		slices.ContainsFunc(status.Details.Causes, func(c metav1.StatusCause) bool { return c.Type == causePermitted })
}

// NoDryRun reports whether a webhook of the cluster does not support dry runs.
func NoDryRun(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && Classify(err) == Rejected &&
		strings.Contains(status.Status().Message, "does not support dry run")
}

// textLimit is the maximum length, in bytes, of a cluster's text in a message.
const textLimit = 500

// Text returns an error's text for users, in one line with its causes: the message itself may only say "rejected".
func Text(err error) string {
	said := err.Error()
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			if cause.Message != "" && !strings.Contains(said, cause.Message) {
				said += "; " + cause.Message
			}
		}
	}
	return Line(said)
}

// Line shortens a cluster's text to one line of at most 500 bytes.
func Line(text string) string { return phrase.Line(text, textLimit) }
