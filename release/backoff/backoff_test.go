package backoff

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAfter(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason         string
		n              int
		first, longest time.Duration
		want           time.Duration
	}{
		"First":       {"the first pause is not doubled", 0, time.Second, time.Minute, time.Second},
		"Negative":    {"a count before the first failure is the first pause", -1, time.Second, time.Minute, time.Second},
		"Doubled":     {"each failure doubles it", 3, time.Second, time.Minute, 8 * time.Second},
		"Limited":     {"64 s are above the limit", 6, time.Second, time.Minute, time.Minute},
		"NoOverflow":  {"weeks of failures do not overflow", math.MaxInt, time.Second, time.Hour, time.Hour},
		"ShortLimit":  {"the limit holds for the first pause too", 0, time.Minute, time.Second, time.Second},
		"EqualLimits": {"it never changes", 5, time.Minute, time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, After(c.n, c.first, c.longest), c.reason)
		})
	}
}
