package api_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/test/race"
)

// Hostile plans of the largest size, eight requests at once, take neither time nor memory; plans of all items are
// accepted meanwhile.
func TestPlans_BoundTimeAndMemory_OfHostileDocuments(t *testing.T) {
	race.SkipBounds(t)
	e := newEngine(t)
	const size = 3 << 19
	list, mapping := "deployPlanItems: [a", "- {x: 1}\n"
	documents := map[string][2]string{
		"values":   {list + strings.Repeat(",a", (size-len(list))/2-1) + "]", yamlBody},
		"json":     {`{"deployPlanItems":["a"` + strings.Repeat(`,"a"`, size/4-8) + "]}", jsonBody},
		"mappings": {"deployPlanItems:\n" + strings.Repeat(mapping, size/len(mapping)-2), yamlBody},
		"tab":      {"deployPlanItems:\n" + strings.Repeat(mapping, size/len(mapping)-4) + "\t- {x: 1}\n", yamlBody},
	}
	var largest strings.Builder
	largest.WriteString("deployPlanItems:\n")
	for i := range 1000 {
		fmt.Fprintf(&largest, "- serviceId: service-%d\n  priority: %d\n  deployment: HTTP_UPLOAD_DEPLOY\n"+
			"  containerExecMethod: SEQUENTIAL\n  deployLabel: a,b\n  httpSrcUri: https://packages.example.com/%0900d\n",
			i, i/100, i)
	}
	require.Greater(t, largest.Len(), 1<<20, "of almost the largest size")
	e.call("POST", "/api/v1/plans/validate", "deployPlanItems: []", yamlBody) // whatever is prepared once is ready

	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begun := time.Now()
	var requests sync.WaitGroup
	for name, document := range documents {
		for range 2 {
			requests.Go(func() {
				// without the check against the schema, which decodes the document again
				answer, err := http.DefaultClient.Do(e.request(t.Context(), "PUT", "/api/v1/plans/hostile", document[0],
					document[1]))
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = answer.Body.Close() }()
				text, err := io.ReadAll(answer.Body)
				if answer.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "50000 keys and values") {
					t.Errorf("%s: %d %.500s %v", name, answer.StatusCode, text, err)
				}
			})
		}
	}
	requests.Wait()
	took := time.Since(begun)
	runtime.ReadMemStats(&after)
	allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
	t.Logf("%s, %d MiB in all", took, allocated)
	require.Less(t, took, 20*time.Second)
	require.Less(t, allocated, uint64(400), "the bodies are read, but no values are made of them")

	answer := e.call("PUT", "/api/v1/plans/largest", largest.String(), yamlBody).is(http.StatusCreated, "it is legal")
	require.NotEmpty(t, answer.body)
	require.Len(t, decode[plan.Document](e.call("GET", "/api/v1/plans/largest", "")).Items, 1000)
}

func TestPlans_ListAHundredErrors(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	wrong := "deployPlanItems:\n" + strings.Repeat("- {serviceId: 1, deployment: STOPP}\n", 500)
	refused := e.call("PUT", "/api/v1/plans/wrong", wrong, yamlBody).is(http.StatusBadRequest, "500 errors")
	errors := refused.problem().Errors
	require.Len(t, errors, 101)
	require.Contains(t, errors[100].Reason, "only the first 100 are listed")
	validated := e.call("POST", "/api/v1/plans/validate", wrong, yamlBody).is(http.StatusOK, "500 errors").body
	require.Equal(t, 100, strings.Count(validated, "did you mean STOP?"))
	require.NotContains(t, validated, "catalogue", "items whose errors are not listed are not taken for valid ones")
}
