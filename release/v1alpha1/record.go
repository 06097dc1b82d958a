package v1alpha1

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/catalog"
)

const (
	// KindTask: one execution of a plan.
	KindTask = "task"
	// KindRollout: one release of one workload.
	KindRollout = "rollout"
	// KindServing: one operation on a serving.
	KindServing = "serving"
	// KindKey: what is left of a pruned record. Its Idempotency-Key still stands for its task, which is shown no more.
	KindKey = "key"
)

// KeyLifetime is how long an Idempotency-Key stands for its task.
const KeyLifetime = 30 * 24 * time.Hour

// maxBodyBytes is far above a task of 1,000 items: 64 MiB.
const maxBodyBytes = 64 << 20

// SubjectLabel is the value of LabelSubject for a subject that isn't a legal label, such as "<party>/<namespace>/<name>": its digest.
func SubjectLabel(subject string) string {
	digest := sha256.Sum256([]byte(subject))
	return hex.EncodeToString(digest[:20])
}

// RolloutSubject is the subject of a rollout's records: all releases under one name have the same.
func RolloutSubject(party, namespace, name string) string {
	return cmp.Or(party, catalog.DefaultParty) + "/" + namespace + "/" + name
}

// RecordName is the name of the ReleaseRecord of a release: "task-<task ID>", "serving-<run ID>".
func RecordName(kind, id string) string { return kind + "-" + id }

// RevisionOf is the number of a release in the history of its name as its record, of which no more than the metadata is needed, has it; 0: none.
func RevisionOf(record metav1.Object) int64 {
	n, _ := strconv.ParseInt(record.GetLabels()[LabelRevision], 10, 64)
	return n
}

// compressors are used again: one takes more than half a MiB, which is a hundred times what it packs here.
var compressors = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// EncodeBody is a value as gzip-compressed JSON, the same bytes for the same value.
func EncodeBody(value any) ([]byte, error) {
	var buffer bytes.Buffer
	zipped := compressors.Get().(*gzip.Writer)
	defer compressors.Put(zipped)
	zipped.Reset(&buffer)
	if err := errors.Join(json.NewEncoder(zipped).Encode(value), zipped.Close()); err != nil {
		return nil, fmt.Errorf("it cannot be written as compressed JSON: %w", err)
	}
	return buffer.Bytes(), nil
}

// DecodeBody reads the body of a record, which EncodeBody wrote, into the value that into points at.
func DecodeBody(body []byte, into any) error {
	if len(body) == 0 {
		return errors.New("the record has no body")
	}
	if err := Decompress(body, into, maxBodyBytes); err != nil {
		return fmt.Errorf("the body of a record cannot be read: %w", err)
	}
	return nil
}

// Decompress reads what EncodeBody wrote, of at most so many bytes once it is decompressed.
func Decompress(body []byte, into any, most int64) error {
	zipped, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return err
	}
	plain, err := io.ReadAll(io.LimitReader(zipped, most+1)) // to the end, where the checksum is
	switch {
	case err != nil:
		return err
	case int64(len(plain)) > most:
		return fmt.Errorf("it has more than %d bytes", most)
	}
	return json.Unmarshal(plain, into)
}
