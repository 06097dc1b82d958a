// Command testreport reads what `go test -json` writes and says what was run: each test with its time as it ends, the
// output of those that fail, and at the end what was skipped, the packages, and a total.
//
// It exits with 1 if anything failed, if nothing was run, or, with CI set in the environment, if a test was skipped. A test
// whose reason to skip names `make test-long` may be skipped unless SLIPWAY_TEST_LONG is set.
package main

import (
	"bufio"
	"fmt"
	"os"
	"time"
)

func main() {
	r := newReport(os.Stdout, policy{CI: os.Getenv("CI") != "", Long: os.Getenv("SLIPWAY_TEST_LONG") != ""})
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		r.line(in.Bytes())
	}
	if err := in.Err(); err != nil {
		fmt.Fprintln(os.Stderr, "testreport: read the test output:", err)
		os.Exit(1)
	}
	if !r.finish(time.Now()) {
		os.Exit(1)
	}
}
