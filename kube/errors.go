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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Class is what a request to an API server failed of.
type Class int

// The classes.
const (
	// Internal: the error comes neither from an API server nor from the way to it: an error of Temporal, a decoding error, a cancelled
	// context, a bug. It says nothing about any cluster.
	Internal Class = iota
	// Unreachable: the server did not answer, or not with a verdict; it is asked again. Trouble of the system.
	Unreachable
	// Forbidden: this process lacks the permission, or the server does not know who it is. Trouble of the system.
	Forbidden
	// Missing: the object is not there.
	Missing
	// Changed: the object is not what it was when the write was decided, or is there already; look again.
	Changed
	// Rejected: the server does not accept the object as it would be, or a test of the patch has failed.
	Rejected
	// Refused: a rule of the cluster (an admission webhook, a policy, a quota, pod security) forbids it, although we have the permission.
	Refused
)

// Classify says of which class an error of a request to an API server is. A 403 is Refused where an access review said that we have the
// permission (see Configure), and Forbidden otherwise.
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
	case code == http.StatusConflict, code == http.StatusGone: // a list has changed too much for its next page
		return Changed
	case code == http.StatusUnprocessableEntity, code == http.StatusBadRequest:
		return Rejected
	case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= http.StatusInternalServerError, code == 0:
		return Unreachable
	default:
		return Refused
	}
}

// unanswered says whether a request got no answer, or only a part of one.
func unanswered(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	var request *url.Error
	var network net.Error
	return errors.As(err, &request) || errors.As(err, &network) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		strings.Contains(err.Error(), brokenOff) || strings.Contains(err.Error(), heldBack)
}

// brokenOff is how client-go words that an answer broke off: over HTTP/2 its error is of no type that others share.
const brokenOff = "error when reading response body"

// heldBack is how client-go words that a request would have had to wait too long for its turn (Options.QPS).
const heldBack = "client rate limiter Wait returned an error"

// causePermitted marks a 403 that an access review has contradicted: we have the permission, so a rule of the cluster refused the request.
const causePermitted metav1.CauseType = "slipway.io/permitted"

func permitted(status metav1.Status) bool {
	return status.Details != nil &&
		slices.ContainsFunc(status.Details.Causes, func(c metav1.StatusCause) bool { return c.Type == causePermitted })
}

// NoDryRun says that a webhook of the cluster cannot be asked what it would do.
func NoDryRun(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && Classify(err) == Rejected && strings.Contains(status.Status().Message, "does not support dry run")
}

// textLimit is the longest text, in bytes, that is taken over from a cluster into a message.
const textLimit = 500

// Text is an error as it is passed on to people, in one line with its causes: the answer itself may say no more than "rejected".
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

// Line makes a text of a cluster fit into a sentence: in one line, at most 500 bytes long.
func Line(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > textLimit {
		text = strings.ToValidUTF8(text[:textLimit], "") + " …"
	}
	return text
}
