package auth

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/problem"
)

// countingLock requires the secret, and counts failures.
func countingLock(t *testing.T) (lock Lock, log *bytes.Buffer) {
	t.Helper()
	log = &bytes.Buffer{}
	failures, err := NewFailures(slog.New(slog.NewTextHandler(log, nil)), prometheus.NewRegistry())
	require.NoError(t, err)
	return Lock{API: "this engine", Label: "http", Source: "its file", Header: BearerHeader,
		Token: tokenFile(t, secret), Failures: failures}, log
}

func statusOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	return problem.Of(err).Status
}

func TestLock_LimitsWrongTokensByAddress(t *testing.T) {
	t.Parallel()
	lock, log := countingLock(t)
	synctest.Test(t, func(t *testing.T) {
		const attacker, other = "203.0.113.5", "203.0.113.6"
		var got []int
		for n := range 30 {
			got = append(got, statusOf(lock.Authenticate(attacker, fmt.Sprint("guess ", n))))
		}
		want := append(bytes.Repeat([]byte{1}, maxFailures), bytes.Repeat([]byte{2}, 10)...)
		for n, kind := range want {
			require.Equal(t, map[byte]int{1: http.StatusUnauthorized, 2: http.StatusTooManyRequests}[kind], got[n], n)
		}
		require.Equal(t, http.StatusOK, statusOf(lock.Authenticate(attacker, secret)), "the right token always passes")
		require.Equal(t, http.StatusUnauthorized, statusOf(lock.Authenticate(attacker)), "no token is no guess")
		require.Equal(t, http.StatusUnauthorized, statusOf(lock.Authenticate(other, "wrong")), "a client of its own")
		time.Sleep(failureWindow)
		require.Equal(t, http.StatusUnauthorized, statusOf(lock.Authenticate(attacker, "wrong")), "a minute later")
	})
	require.InDelta(t, 32, testutil.ToFloat64(lock.Failures.total.WithLabelValues("http", "wrong")), 0)
	require.InDelta(t, 1, testutil.ToFloat64(lock.Failures.total.WithLabelValues("http", "missing")), 0)
	require.Equal(t, 4, strings.Count(log.String(), "\n"), "the first one of each minute, and the limit: %s", log)
	require.Equal(t, 1, strings.Count(log.String(), "it gets 429"), log)
	require.Contains(t, log.String(), "from=203.0.113.5")
	require.NotContains(t, log.String(), "guess")
}

func TestFailures_BoundLogAndMemory(t *testing.T) {
	t.Parallel()
	lock, log := countingLock(t)
	for n := range 2 * keptAddresses {
		_ = lock.Authenticate(fmt.Sprintf("10.%d.%d.%d", n>>16, n>>8&255, n&255), "wrong")
	}
	require.Equal(t, maxFailureLines, strings.Count(log.String(), "\n"), "lines of a minute")
	require.Equal(t, keptAddresses, lock.Failures.tallies.Len())
}

func TestLock_RefusesAll_WhenTokenUnreadable(t *testing.T) {
	t.Parallel()
	lock, log := countingLock(t)
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte(secret), 0o600))
	var err error
	lock.Token, err = OpenToken("this engine", path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte("short"), 0o600))
	for range 100 {
		for _, presented := range []string{"", "short", secret} {
			require.Equal(t, http.StatusServiceUnavailable, statusOf(lock.Authenticate("203.0.113.5", presented)))
		}
	}
	require.Contains(t, log.String(), "holds a token of 5 characters")
	require.Equal(t, maxFailureLines, strings.Count(log.String(), "\n"))
}
