// Package start is what the ways to start a release have in common: times, IDs, the preflight and the texts of the Temporal UI.
package start

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
)

// Timeout bounds one start from its first look to its answer. It is well below startWindow.
const Timeout = 40 * time.Second

// NamePrefix is the part of a task's ID that people recognise: the plan's name, as far as it fits and as names of objects are spelled.
func NamePrefix(planName string) string {
	const longest = 40
	name := strings.ToLower(planName)
	return strings.TrimRight(name[:min(len(name), longest)], "-.")
}

// AdoptWindow is how long after its record was written a release without a workflow may still be started by a repeat of its request.
// After that a missing workflow may as well be one that Temporal has forgotten, and must not run twice.
const AdoptWindow = time.Hour

// WorkflowTimeout is how long Temporal may take to accept the task's workflow.
const WorkflowTimeout = 10 * time.Second

// NeverStarted says whether Temporal has surely not started the workflow, nor would if it were asked again.
func NeverStarted(err error) bool {
	var invalid *serviceerror.InvalidArgument
	var denied *serviceerror.PermissionDenied
	var namespace *serviceerror.NamespaceNotFound
	return errors.As(err, &invalid) || errors.As(err, &denied) || errors.As(err, &namespace)
}

// Window is how long a release may be accepted before its workflow runs. Whoever starts one is given up well before
// (executeTimeout), so that a release without a workflow after this time was never started.
const Window = 60 * time.Second

// LowerBase32 writes digests as IDs have them.
var LowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// KeyLabel is the digest of an Idempotency-Key as a record carries it; a label has at most 63 characters.
func KeyLabel(key string) string {
	digest := sha256.Sum256([]byte(key))
	return hex.EncodeToString(digest[:20])
}
