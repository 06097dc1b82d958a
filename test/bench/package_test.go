package bench

import (
	"archive/zip"
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/sources"
)

// byPackage is the number of services that get a code package, each its own.
const byPackage = 50

// TestSoakPackagesAmongServices measures the cost of fetching, checking and pinning packages: the same services in the
// same waves, 50 of them by package, compared with RESTART of all.
func TestSoakPackagesAmongServices(t *testing.T) {
	harness.Soak(t)
	web := sources.NewFiles(t)
	e := harness.Start(t, harness.Options{SeparateWorker: true,
		WorkerEnv: []string{"SLIPWAY_SOURCE_ALLOW=127.0.0.0/8", "SLIPWAY_IMAGE=registry.test/slipway:v1"}})
	prepare(t, e)
	e.PutPlan("packages", packages(t, e, web))
	restart := execute(t, e, "large")
	mixed := execute(t, e, "packages")
	again := execute(t, e, "packages")
	for n := range byPackage {
		require.LessOrEqual(t, web.Downloads(packagePath(n)), 2,
			"each of the two executions must download a package at most once")
	}
	fmt.Printf("\n%d services of %d pods, %d waves, at most %d at once, %d of them by package of %d KiB\n", services,
		pods, waves, maxParallel, byPackage,
		packageBytes>>10)
	fmt.Printf("  RESTART of all                                  %6.1f s\n", restart.Seconds())
	fmt.Printf("  %d by package, the others RESTART               %6.1f s   %.2f × RESTART\n", byPackage,
		mixed.Seconds(), mixed.Seconds()/restart.Seconds())
	fmt.Printf("  the same packages again, which change no pods   %6.1f s   %.2f × RESTART\n\n", again.Seconds(),
		again.Seconds()/restart.Seconds())
}

func execute(t *testing.T, e *harness.Engine, name string) time.Duration {
	started := time.Now()
	task := e.WaitTaskUntil(e.Execute(name), "an end", func(task plan.Task) bool { return task.FinishedAt != nil })
	require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
	return time.Since(started)
}

const packageBytes = 256 << 10

func packagePath(n int) string { return fmt.Sprintf("/s%d.zip", n) }

// packages returns a plan like that of prepare in which every fourth service is deployed by package.
func packages(t *testing.T, e *harness.Engine, web *sources.Files) string {
	var document strings.Builder
	document.WriteString("deployPlanItems:\n")
	var wg sync.WaitGroup
	for n := range services {
		name, priority := fmt.Sprintf("s%d", n), waves-n/(services/waves)
		if n%(services/byPackage) != 0 {
			fmt.Fprintf(&document, "- {serviceId: %s, priority: %d, deployment: RESTART}\n", name, priority)
			continue
		}
		path := packagePath(n / (services / byPackage))
		web.Put(path, zipped(t, n))
		wg.Go(func() { e.PutService(name, "package: {container: app, mountPath: /app}\n", "Deployment/"+name) })
		fmt.Fprintf(&document, "- {serviceId: %s, priority: %d, deployment: HTTP_UPLOAD_DEPLOY, httpSrcUri: '%s%s'}\n",
			name, priority, web.URL, path)
	}
	wg.Wait()
	return document.String()
}

// zipped returns an archive of packageBytes whose content is unique to the service.
func zipped(t *testing.T, n int) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	file, err := w.CreateHeader(&zip.FileHeader{Name: "content", Method: zip.Store})
	require.NoError(t, err)
	_, err = file.Write(bytes.Repeat(fmt.Appendf(nil, "%07d\n", n), packageBytes/8))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}
