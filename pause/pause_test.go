package pause

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFor_WaitsForItsTime_OrForTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, stopped := time.Now(), errors.New("stopped")
		ctx, stop := context.WithCancelCause(t.Context())
		require.NoError(t, For(ctx, time.Minute))
		require.Equal(t, time.Minute, time.Since(began))
		time.AfterFunc(time.Second, func() { stop(stopped) })
		require.ErrorIs(t, For(ctx, time.Hour), stopped)
		require.Equal(t, time.Minute+time.Second, time.Since(began), "it does not wait for the rest")
		require.ErrorIs(t, For(ctx, time.Hour), stopped, "the context has ended before")
	})
}
