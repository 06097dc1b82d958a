package packages

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStore_BoundsUploads: uploads at once take no more of the disk than the store allows, finished or not. Packages
// that are stored don't count.
func TestStore_BoundsUploads(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), Options{MaxBytes: 1000, TempBytes: 1500})
	address := serve(t, s)
	first, second := bytes.Repeat([]byte("a"), 1000), bytes.Repeat([]byte("b"), 1000)
	client := NewClient(address, secret, nil)
	from, to := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- client.Put(t.Context(), digestOf(first), from, 1000) }()
	_, err := to.Write(first[:900])
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		free := s.space.Take(700) == nil
		if free {
			s.space.Give(700)
		}
		return !free
	}, time.Minute, time.Millisecond)
	err = client.Put(t.Context(), digestOf(second), bytes.NewReader(second), 1000)
	require.ErrorIs(t, err, ErrUploads)
	require.ErrorContains(t, err, http.StatusText(http.StatusServiceUnavailable))
	_, err = to.Write(first[900:])
	require.NoError(t, err)
	require.NoError(t, to.Close())
	require.NoError(t, <-ended)
	require.NoError(t, client.Put(t.Context(), digestOf(second), bytes.NewReader(second), 1000))
	require.NoError(t, s.space.Take(1500), "nothing is left")
}
