package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// maxReview is how many bytes a review of an edit may have, and maxReviews those that are in memory together. An
	// API server stores objects of up to 1.5 MiB; a review has the object before and after the edit, and its client may
	// have padded it with characters that take six bytes in JSON.
	maxReview, maxReviews = 8 << 20, 24 << 20
	// maxConversions is how many bytes all conversions together may have. One may have as many: it is a whole list.
	maxConversions = 24 << 20
	// decodedAtOnce is how many bytes of reviews are decoded at once. A larger one is decoded alone.
	decodedAtOnce = 1 << 20
	// maxBeginning is how much is read of a review that isn't read to its end; maxUnread is the most that is discarded
	// of it before the answer. An API server takes a connection that is closed before for a failed webhook.
	maxBeginning, maxUnread = 8 << 10, 64 << 20
	// readingTime is the time for the body of a review, once there is room for it.
	readingTime = 5 * time.Second
	// maxTimeout is how long API servers wait at most for the webhooks of the gate, and conversionTimeout for
	// conversions, of which they do not say how long they wait.
	maxTimeout, conversionTimeout = 10 * time.Second, 20 * time.Second
)

// editsInMemory and editsDecoded bound the reviews of edits of this process, whichever webhook they are for.
var editsInMemory, editsDecoded = semaphore.NewWeighted(maxReviews), semaphore.NewWeighted(decodedAtOnce)

// errBusy is a review that can't be answered because of others.
var errBusy = errors.New("the server is busy with other reviews; try again in a few seconds")

// reviews serves the reviews of one endpoint in bounded memory. A review beyond the bounds is refused in an answer of
// the kind that API servers expect: an error could be one that they ignore.
type reviews struct {
	// most is how many bytes a review may have, room how many all may have.
	most int64
	room *semaphore.Weighted
	work *semaphore.Weighted
	// timeout is how long an API server waits for an answer, unless its request says less.
	timeout time.Duration
	// advice says what to do about a review that is too large.
	advice string
	// review answers a review, in parts; refuse answers one from its beginning, and says why.
	review func(ctx context.Context, request []byte) ([][]byte, error)
	refuse func(ctx context.Context, beginning []byte, why string) ([][]byte, error)
}

// ServeHTTP answers a review. A request that is not a review, or cannot be answered, gets an error status.
func (v *reviews) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	timeout := v.timeoutOf(r)
	ctx, cancel := context.WithTimeout(r.Context(), timeout*9/10)
	defer cancel()
	size := r.ContentLength
	if size > v.most {
		v.turnAway(ctx, w, r, nil, v.tooLarge())
		return
	}
	if size < 0 {
		size = v.most
	}
	waiting, stop := context.WithTimeout(ctx, timeout*6/10)
	defer stop()
	if v.room.Acquire(waiting, size) != nil {
		v.turnAway(ctx, w, r, nil, errBusy)
		return
	}
	defer v.room.Release(size)
	beginReading(w)
	request, err := readBody(r, v.most)
	switch {
	case err != nil:
		http.Error(w, "the request can't be read: "+err.Error(), http.StatusBadRequest)
		return
	case int64(len(request)) > v.most:
		v.turnAway(ctx, w, r, request[:maxBeginning], v.tooLarge())
		return
	}
	share := min(int64(len(request)), decodedAtOnce)
	if v.work.Acquire(waiting, share) != nil {
		v.turnAway(ctx, w, r, request[:min(len(request), maxBeginning)], errBusy)
		return
	}
	defer v.work.Release(share)
	answer, err := v.review(ctx, request)
	if errors.Is(err, errBusy) {
		answer, err = v.refuse(ctx, request, errBusy.Error())
	}
	write(w, answer, err)
}

// beginReading limits the time for what is left of a body.
func beginReading(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readingTime)) // every listener supports it
}

// timeoutOf returns how long the API server waits for the answer.
func (v *reviews) timeoutOf(r *http.Request) time.Duration {
	if timeout, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil && timeout > 0 {
		return min(timeout, v.timeout)
	}
	return v.timeout
}

func (v *reviews) tooLarge() error {
	return fmt.Errorf("the review has more than %d MiB of JSON: %s", v.most>>20, v.advice)
}

// readBody reads a body to its end, or one byte more than is allowed.
func readBody(r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength >= 0 {
		request := make([]byte, r.ContentLength)
		_, err := io.ReadFull(r.Body, request)
		_, _ = r.Body.Read(make([]byte, 1)) // the end of the body ends the time for it
		return request, err
	}
	var request bytes.Buffer
	_, err := request.ReadFrom(io.LimitReader(r.Body, most+1))
	return request.Bytes(), err
}

// turnAway refuses a review from its beginning, nil if that isn't read yet, and discards what is left of it.
func (v *reviews) turnAway(ctx context.Context, w http.ResponseWriter, r *http.Request, beginning []byte, why error) {
	beginReading(w)
	if beginning == nil {
		beginning = make([]byte, maxBeginning)
		n, _ := io.ReadFull(r.Body, beginning) // an error ends the copy below as well
		beginning = beginning[:n]
	}
	_, err := io.Copy(io.Discard, r.Body)
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		http.Error(w, why.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	answer, err := v.refuse(ctx, beginning, why.Error())
	write(w, answer, err)
}

// write writes an answer, or the error as status 400.
func write(w http.ResponseWriter, answer [][]byte, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	for _, part := range answer {
		if _, err := w.Write(part); err != nil {
			return
		}
	}
}

// reviewer answers the reviews of edits. Refuse answers one that isn't read to its end, from its beginning; why says
// why, and what to do.
type reviewer interface {
	Review(request []byte) (answer []byte, err error)
	Refuse(beginning []byte, why string) (answer []byte, err error)
}

// editReviews returns the handler of the reviews of edits. advice is what to do about an object whose review is too
// large.
func editReviews(advice string, decider func(context.Context) reviewer) *reviews {
	return &reviews{most: maxReview, room: editsInMemory, work: editsDecoded, timeout: maxTimeout, advice: advice,
		review: func(ctx context.Context, request []byte) ([][]byte, error) {
			answer, err := decider(ctx).Review(request)
			return [][]byte{answer}, err
		},
		refuse: func(ctx context.Context, beginning []byte, why string) ([][]byte, error) {
			answer, err := decider(ctx).Refuse(beginning, why)
			return [][]byte{answer}, err
		}}
}
