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

// Two processes serve one bucket. One removes a package, if it was not used since it was seen, while the other uses it or stores it. Whoever is told
// that the package is there finds it there.
func TestNoPackageIsRemovedUnderWhoeverUsesIt(t *testing.T) {
	t.Parallel()
	server := buckets.Start(t)
	one, other := openBucket(t, server, Options{}), openBucket(t, server, Options{})
	// A few requests take as long as several others, so that those of the two come in every order.
	server.Before(func(http.ResponseWriter, *http.Request) bool {
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
		_, err = one.Stat(t.Context(), digest)
		switch {
		case used == nil:
			require.NoError(t, err, "round %d: it was said to be there, and the removal said %v", n, removed)
		case removed == nil:
			require.ErrorIs(t, err, ErrAbsent, "round %d", n)
		}
		require.True(t, used == nil || errors.Is(used, ErrAbsent) || errors.Is(used, ErrBusy), "round %d: %v", n, used)
		require.True(t, removed == nil || errors.Is(removed, ErrUsed), "round %d: %v", n, removed)
		outcomes[fmt.Sprintf("used: %v, removed: %v", used == nil, removed == nil)]++
	}
	require.GreaterOrEqual(t, len(outcomes), 2, "neither of the two was always first: %v", outcomes)
	require.Empty(t, slices.DeleteFunc(server.Keys(), func(key string) bool { return !strings.Contains(key, removingPrefix) }), "nothing stays announced")
}

// A process that dies while it removes a package leaves its announcement. It keeps others from the package for as long as the removal could take.
func TestTheAnnouncementOfADeadProcess(t *testing.T) {
	t.Parallel()
	server, clock, content := buckets.Start(t), time.Now(), []byte("package")
	s, digest := openBucket(t, server, Options{Now: func() time.Time { return clock }}), digestOf(content)
	_, _, err := s.Put(t.Context(), digest, bytes.NewReader(content))
	require.NoError(t, err)
	announced := "shop/" + removingPrefix + digest + "/" + inName(clock) + "-DEAD"
	_, err = server.S3.PutObject(t.Context(), buckets.Name, announced, bytes.NewReader(nil), 0, minio.PutObjectOptions{DisableContentSha256: true})
	require.NoError(t, err)
	_, err = s.Use(t.Context(), digest)
	require.ErrorIs(t, err, ErrBusy)
	answer, said := ask(t, "PUT", serve(t, s)+"/packages/sha256/"+digest, bytes.NewReader(content))
	require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	require.Contains(t, said, "try again in a minute")
	clock = clock.Add(removalStale)
	_, err = s.Use(t.Context(), digest)
	require.NoError(t, err)
	require.NotContains(t, server.Keys(), announced)
}

func TestABucketThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	server := buckets.Start(t)
	nobody := buckets.Start(t)
	nobody.Kill()
	for _, c := range []struct {
		reason string
		change func(*BucketOptions)
		says   string
	}{
		{"There is none.", func(o *BucketOptions) { o.Bucket = "others" }, "there is no bucket others"},
		{"Nobody answers.", func(o *BucketOptions) { o.Endpoint = nobody.URL }, "nothing can be read in bucket packages"},
		{"No such service.", func(o *BucketOptions) { o.Endpoint = "https://s3.example.invalid" }, "nothing can be read in bucket packages"},
		{"No endpoint of S3.", func(o *BucketOptions) { o.Endpoint = server.URL + "/packages" }, "has a path: name the service alone"},
	} {
		where := whereIs(server)
		c.change(&where)
		_, err := OpenBucket(t.Context(), where, Options{})
		require.ErrorContains(t, err, c.says, c.reason)
	}
	for right, says := range map[string]string{
		http.MethodPut: "nothing can be written (s3:PutObject)", http.MethodHead: "nothing can be read (s3:GetObject)",
		http.MethodGet: "nothing can be listed (s3:ListBucket)", http.MethodDelete: "nothing can be removed (s3:DeleteObject)",
	} {
		server.Before(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != right || !strings.Contains(r.URL.String(), "probe") {
				return false
			}
			w.WriteHeader(http.StatusForbidden)
			return true
		})
		_, err := OpenBucket(t.Context(), whereIs(server), Options{})
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), buckets.Environment["AWS_SECRET_ACCESS_KEY"])
	}
}

// A bucket that fails for a while loses nothing, and says what it is.
func TestABucketThatFails(t *testing.T) {
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
	answer, said := ask(t, "GET", address+"/packages/sha256/"+digest, nil)
	require.Equal(t, http.StatusInternalServerError, answer.StatusCode, said)
	require.Less(t, time.Since(began), 20*time.Second, "a pod soon turns to the source")
	_, _, err = s.Put(t.Context(), digestOf([]byte("other")), strings.NewReader("other"))
	require.ErrorContains(t, err, "in bucket packages")
	server.Run()
	answer, said = ask(t, "GET", address+"/packages/sha256/"+digest, nil)
	require.Equal(t, http.StatusOK, answer.StatusCode, said)
	require.Equal(t, string(content), said)
	server.Before(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut {
			return false
		}
		w.WriteHeader(http.StatusInsufficientStorage)
		return true
	})
	answer, said = ask(t, "PUT", address+"/packages/sha256/"+digestOf([]byte("other")), strings.NewReader("other"))
	require.Equal(t, http.StatusInsufficientStorage, answer.StatusCode, said)
	require.Contains(t, said, "the store is full")
}

// What killed processes left is cleared away a day later, and nothing that others have in the bucket.
func TestWhatIsLeftInABucketIsCleared(t *testing.T) {
	t.Parallel()
	server, content, ctx := buckets.Start(t), []byte("package"), context.Background()
	clock := time.Now()
	options := Options{Now: func() time.Time { return clock }}
	s, digest := openBucket(t, server, options), digestOf(content)
	_, _, err := s.Put(ctx, digest, bytes.NewReader(content))
	require.NoError(t, err)
	core := minio.Core{Client: server.S3}
	gone := strings.Repeat("0", 64)
	_, err = core.NewMultipartUpload(ctx, buckets.Name, "shop/sha256/"+gone, minio.PutObjectOptions{})
	require.NoError(t, err)
	orphan := "shop/" + timesPrefix + noted{digest: gone, stored: clock, used: clock}.name()
	for _, key := range []string{orphan, "bank/sha256/" + gone, "shop/README"} {
		_, err := server.S3.PutObject(ctx, buckets.Name, key, bytes.NewReader(nil), 0, minio.PutObjectOptions{DisableContentSha256: true})
		require.NoError(t, err)
	}
	openBucket(t, server, options)
	require.Len(t, server.Uploads(), 1, "another process may be at it")
	require.Contains(t, server.Keys(), orphan)
	clock = clock.Add(leftTime + time.Minute)
	s = openBucket(t, server, options)
	require.Empty(t, server.Uploads())
	require.NotContains(t, server.Keys(), orphan)
	require.Subset(t, server.Keys(), []string{"bank/sha256/" + gone, "shop/README"})
	listed, next, err := s.List(ctx, 10, "")
	require.NoError(t, err)
	require.Empty(t, next)
	require.Len(t, listed, 1)
	require.Equal(t, digest, listed[0].SHA256, "what others keep is not listed")
}

// Packages of several pieces, at the sizes where the pieces change.
func TestPackagesOfSeveralPieces(t *testing.T) {
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
