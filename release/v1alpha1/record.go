package v1alpha1

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"slipway.io/slipway/release/catalog"
)

// KindTask is the kind of a record that one execution of a plan leaves.
const KindTask = "task"

// KindRollout is the kind of a record that one release of one workload leaves.
const KindRollout = "rollout"

// KindServing is the kind of a record that one operation on a serving leaves.
const KindServing = "serving"

// KindKey is the LabelKind of what is left of a pruned record: the Idempotency-Key still stands for its task, which is shown no more.
const KindKey = "key"

// KeyLifetime is how long an Idempotency-Key stands for its task.
const KeyLifetime = 30 * 24 * time.Hour

// LabelState is the final state of a completed ReleaseRecord, so that records can be told apart without their bodies.
const LabelState = "slipway.io/state"

// maxBodyBytes bounds what a compressed body may unfold to: 64 MiB, far above a task of 1,000 items.
const maxBodyBytes = 64 << 20

// LabelVia is the front door through which the release was started.
const LabelVia = "slipway.io/via"

// LabelBringHome marks the record of a rollout that releases nothing, and only brings home what one before it left frozen.
const LabelBringHome = "slipway.io/bring-home"

// SubjectLabel is the value of LabelSubject for a subject that a label cannot hold as it is, such as a rollout's "<party>/<namespace>/<name>": its digest.
func SubjectLabel(subject string) string {
	digest := sha256.Sum256([]byte(subject))
	return hex.EncodeToString(digest[:20])
}

// RolloutSubject is the subject of a rollout's records: all releases under one name have the same.
func RolloutSubject(party, namespace, name string) string {
	return cmp.Or(party, catalog.DefaultParty) + "/" + namespace + "/" + name
}

// RecordName is the name of the ReleaseRecord of a release: "task-<task ID>" for a task, "serving-<run ID>" for an operation on a serving.
func RecordName(kind, id string) string { return kind + "-" + id }

// EncodeBody is a value as the compressed JSON that records carry.
func EncodeBody(value any) ([]byte, error) {
	var buffer bytes.Buffer
	zipped := gzip.NewWriter(&buffer)
	if err := json.NewEncoder(zipped).Encode(value); err != nil {
		return nil, fmt.Errorf("encode the body of a record: %w", err)
	}
	if err := zipped.Close(); err != nil {
		return nil, fmt.Errorf("compress the body of a record: %w", err)
	}
	return buffer.Bytes(), nil
}

// DecodeBody reads what EncodeBody wrote into the value that into points at.
func DecodeBody(body []byte, into any) error {
	if len(body) == 0 {
		return fmt.Errorf("the record has no body")
	}
	zipped, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("unfold the body of a record: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(zipped, maxBodyBytes+1))
	if err != nil {
		return fmt.Errorf("unfold the body of a record: %w", err)
	}
	if len(plain) > maxBodyBytes {
		return fmt.Errorf("the body of a record unfolds to more than %d bytes", maxBodyBytes)
	}
	if err := json.Unmarshal(plain, into); err != nil {
		return fmt.Errorf("decode the body of a record: %w", err)
	}
	return nil
}
