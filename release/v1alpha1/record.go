package v1alpha1

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/digest"
)

const (
	// KindTask is the kind of one execution of a plan.
	KindTask = "task"
	// KindRollout is the kind of one release of one workload.
	KindRollout = "rollout"
	// KindServing is the kind of one operation on a serving.
	KindServing = "serving"
	// KindKey is the kind of what remains of a pruned record: its Idempotency-Key still refers to its task, which is no
	// longer shown.
	KindKey = "key"
)

// KeyLifetime is how long an Idempotency-Key refers to its task.
const KeyLifetime = 30 * 24 * time.Hour

// maxBodyBytes is 64 MiB, far more than the body of a task of 1,000 items.
const maxBodyBytes = 64 << 20

// SubjectLabel returns the value of LabelSubject for a subject that is not a legal label, such as
// "<party>/<namespace>/<name>": its digest.
func SubjectLabel(subject string) string { return digest.Of(subject)[:40] }

// RolloutSubject returns the subject of a rollout's records: all releases under one name share it.
func RolloutSubject(party, namespace, name string) string {
	return cmp.Or(party, catalog.DefaultParty) + "/" + namespace + "/" + name
}

// RecordName returns the name of the ReleaseRecord of a release: "task-<task ID>", "serving-<run ID>".
func RecordName(kind, id string) string { return kind + "-" + id }

// RevisionOf returns the number of a release in the history of its name; 0: none. It needs only the metadata of the
// record.
func RevisionOf(record metav1.Object) int64 {
	n, _ := strconv.ParseInt(record.GetLabels()[LabelRevision], 10, 64)
	return n
}

// compressors are reused: a gzip writer takes more than 0.5 MiB, a hundred times what it compresses here.
var compressors = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// EncodeBody returns a value as gzip-compressed JSON, with the same bytes for the same value.
func EncodeBody(value any) ([]byte, error) {
	var buffer bytes.Buffer
	zipped := compressors.Get().(*gzip.Writer)
	defer compressors.Put(zipped)
	zipped.Reset(&buffer)
	if err := errors.Join(json.NewEncoder(zipped).Encode(value), zipped.Close()); err != nil {
		return nil, fmt.Errorf("cannot encode the body as compressed JSON: %w", err)
	}
	return buffer.Bytes(), nil
}

// DecodeBody decodes the body of a record, written by EncodeBody, into the value that into points to.
func DecodeBody(body []byte, into any) error {
	if len(body) == 0 {
		return errors.New("the record has no body")
	}
	if err := Decompress(body, into, maxBodyBytes); err != nil {
		return fmt.Errorf("cannot read the body of the record: %w", err)
	}
	return nil
}

// Decompress decodes what EncodeBody wrote; it fails if that has more than most bytes after decompression.
func Decompress(body []byte, into any, most int64) error {
	zipped, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return err
	}
	plain, err := io.ReadAll(io.LimitReader(zipped, most+1)) // reads to the end, which verifies the checksum
	switch {
	case err != nil:
		return err
	case int64(len(plain)) > most:
		return fmt.Errorf("it has more than %d bytes", most)
	}
	return json.Unmarshal(plain, into)
}
