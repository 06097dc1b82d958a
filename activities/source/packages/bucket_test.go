package packages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/buckets"
)

// Two processes share one bucket. One removes a package that was not used since it was listed, while the other uses or
// stores it. A successful Use or Put guarantees that the package exists.
func TestBucket_UsedPackageIsNotRemovedConcurrently(t *testing.T) {
	t.Parallel()
	server := buckets.Start(t)
	one, other := openBucket(t, server, Options{}), openBucket(t, server, Options{})
	// Some requests are delayed, so that those of the two processes interleave in many orders.
	server.Intercept(func(http.ResponseWriter, *http.Request) bool {
		if rand.IntN(4) == 0 {
			time.Sleep(time.Duration(rand.IntN(15)) * time.Millisecond)
		}
		return false
	})
	outcomes := map[string]int{}
	for n := range 80 {
		content := fmt.Appendf(nil, "package %d", n)
		digest := digestOf(content)
		seen, _, err := one.Put(t.Context(), digest, bytes.NewReader(content))
		require.NoError(t, err)
		var used, removed error
		var both sync.WaitGroup
		both.Go(func() { removed = other.Delete(t.Context(), digest, seen.UsedAt.Add(time.Nanosecond)) })
		both.Go(func() {
			if n%2 == 0 {
				_, used = one.Use(t.Context(), digest)
			} else {
				_, _, used = one.Put(t.Context(), digest, bytes.NewReader(content))
			}
		})
		both.Wait()
		_, err = one.backend.stat(t.Context(), digest)
		switch {
		case used == nil:
			require.NoError(t, err, "round %d: it was used successfully, but the removal returned %v", n, removed)
		case removed == nil:
			require.ErrorIs(t, err, ErrAbsent, "round %d", n)
		}
		require.True(t, used == nil || errors.Is(used, ErrAbsent) || errors.Is(used, ErrBusy), "round %d: %v", n, used)
		require.True(t, removed == nil || errors.Is(removed, ErrUsed), "round %d: %v", n, removed)
		outcomes[fmt.Sprintf("used: %v, removed: %v", used == nil, removed == nil)]++
	}
	require.GreaterOrEqual(t, len(outcomes), 2, "neither of the two was always first: %v", outcomes)
	require.Empty(t, slices.DeleteFunc(server.Keys(), func(key string) bool {
		return !strings.Contains(key, removingPrefix)
	}), "no announcement is left behind")
}

// A process that is killed during a removal leaves its announcement, which blocks other processes until it expires.
func TestRemovalAnnouncement_ExpiresAfterProcessDied(t *testing.T) {
	t.Parallel()
	server, clock, content := buckets.Start(t), time.Now(), []byte("package")
	s, digest := openBucket(t, server, Options{Now: func() time.Time { return clock }}), digestOf(content)
	_, _, err := s.Put(t.Context(), digest, bytes.NewReader(content))
	require.NoError(t, err)
	announced := "shop/" + removingPrefix + digest + "/" + formatTime(clock) + "-DEAD"
	_, err = server.S3.PutObject(t.Context(), buckets.Name, announced, bytes.NewReader(nil), 0,
		minio.PutObjectOptions{DisableContentSha256: true})
	require.NoError(t, err)
	_, err = s.Use(t.Context(), digest)
	require.ErrorIs(t, err, ErrBusy)
	response, body := send(t, "PUT", serve(t, s)+"/packages/sha256/"+digest, bytes.NewReader(content))
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	require.Contains(t, body, "try again in a minute")
	clock = clock.Add(removalExpiry)
	_, err = s.Use(t.Context(), digest)
	require.NoError(t, err)
	require.NotContains(t, server.Keys(), announced)
}

func TestOpenBucket_Failures(t *testing.T) {
	t.Parallel()
	server := buckets.Start(t)
	stopped := buckets.Start(t)
	stopped.Kill()
	for _, c := range []struct {
		reason string
		change func(*BucketOptions)
		says   string
	}{
		{"The bucket does not exist.", func(o *BucketOptions) { o.Bucket = "others" }, "there is no bucket others"},
		{"The service does not answer.", func(o *BucketOptions) {
			o.Endpoint = stopped.URL
		}, "nothing can be read in bucket packages"},
		{"The service does not exist.", func(o *BucketOptions) {
			o.Endpoint = "https://s3.example.invalid"
		}, "nothing can be read in bucket packages"},
		{"The endpoint has a path.", func(o *BucketOptions) {
			o.Endpoint = server.URL + "/packages"
		}, "has a path: name the service alone"},
	} {
		where := optionsFor(server)
		c.change(&where)
		_, err := OpenBucket(t.Context(), where, Options{})
		require.ErrorContains(t, err, c.says, c.reason)
	}
	for method, says := range map[string]string{
		http.MethodPut: "nothing can be written (s3:PutObject)", http.MethodHead: "nothing can be read (s3:GetObject)",
		http.MethodGet:    "nothing can be listed (s3:ListBucket)",
		http.MethodDelete: "nothing can be removed (s3:DeleteObject)",
	} {
		server.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != method || !strings.Contains(r.URL.String(), "probe") {
				return false
			}
			w.WriteHeader(http.StatusForbidden)
			return true
		})
		_, err := OpenBucket(t.Context(), optionsFor(server), Options{})
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), buckets.Environment["AWS_SECRET_ACCESS_KEY"])
	}
}

// A bucket that is unavailable for a while loses nothing, and its errors say which bucket it is.
func TestBucket_WhenServiceFails(t *testing.T) {
	t.Parallel()
	server, content := buckets.Start(t), bytes.Repeat([]byte("package"), 1000)
	s, digest := openBucket(t, server, Options{}), digestOf(content)
	_, _, err := s.Put(t.Context(), digest, bytes.NewReader(content))
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))
	address := serve(t, s)
	server.Kill()
	require.Error(t, s.Ready(t.Context()))
	began := time.Now()
	response, body := send(t, "GET", address+"/packages/sha256/"+digest, nil)
	require.Equal(t, http.StatusInternalServerError, response.StatusCode, body)
	require.Less(t, time.Since(began), 20*time.Second, "a pod falls back to the source soon")
	_, _, err = s.Put(t.Context(), digestOf([]byte("other")), strings.NewReader("other"))
	require.ErrorContains(t, err, "in bucket packages")
	server.Run()
	response, body = send(t, "GET", address+"/packages/sha256/"+digest, nil)
	require.Equal(t, http.StatusOK, response.StatusCode, body)
	require.Equal(t, string(content), body)
	server.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut {
			return false
		}
		w.WriteHeader(http.StatusInsufficientStorage)
		return true
	})
	response, body = send(t, "PUT", address+"/packages/sha256/"+digestOf([]byte("other")), strings.NewReader("other"))
	require.Equal(t, http.StatusInsufficientStorage, response.StatusCode, body)
	require.Contains(t, body, "the store is full")
}

// Leftovers of killed processes are removed a day later; objects of other programs in the bucket stay.
func TestOpenBucket_RemovesOldLeftovers(t *testing.T) {
	t.Parallel()
	server, content, ctx := buckets.Start(t), []byte("package"), context.Background()
	clock := time.Now()
	options := Options{Now: func() time.Time { return clock }}
	s, digest := openBucket(t, server, options), digestOf(content)
	_, _, err := s.Put(ctx, digest, bytes.NewReader(content))
	require.NoError(t, err)
	core := minio.Core{Client: server.S3}
	absent := strings.Repeat("0", 64)
	_, err = core.NewMultipartUpload(ctx, buckets.Name, "shop/sha256/"+absent, minio.PutObjectOptions{})
	require.NoError(t, err)
	orphan := "shop/" + timesPrefix + timesObject{digest: absent, stored: clock, used: clock}.name()
	for _, key := range []string{orphan, "bank/sha256/" + absent, "shop/README"} {
		_, err := server.S3.PutObject(ctx, buckets.Name, key, bytes.NewReader(nil), 0,
			minio.PutObjectOptions{DisableContentSha256: true})
		require.NoError(t, err)
	}
	openBucket(t, server, options)
	require.Len(t, server.Uploads(), 1, "another process may still be uploading")
	require.Contains(t, server.Keys(), orphan)
	clock = clock.Add(leftoverAge + time.Minute)
	s = openBucket(t, server, options)
	require.Empty(t, server.Uploads())
	require.NotContains(t, server.Keys(), orphan)
	require.Subset(t, server.Keys(), []string{"bank/sha256/" + absent, "shop/README"})
	listed, next, err := s.List(ctx, 10, "")
	require.NoError(t, err)
	require.Empty(t, next)
	require.Len(t, listed, 1)
	require.Equal(t, digest, listed[0].SHA256, "objects outside the prefix are not listed")
}

// Packages of several parts, with sizes around the part boundary.
func TestBucket_MultipartUploads(t *testing.T) {
	t.Parallel()
	s := openBucket(t, buckets.Start(t), Options{MaxBytes: 100 << 20})
	for _, size := range []int{partBytes - 1, partBytes, partBytes + 1, 2 * partBytes} {
		content := make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(content)
		_, created, err := s.Put(t.Context(), digestOf(content), bytes.NewReader(content))
		require.NoError(t, err)
		require.True(t, created)
		file, _, err := s.Open(t.Context(), digestOf(content))
		require.NoError(t, err)
		have, err := io.ReadAll(file)
		require.NoError(t, errors.Join(err, file.Close()))
		require.True(t, bytes.Equal(content, have), "%d bytes", size)
	}
}
