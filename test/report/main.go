// Command testreport reads the output of `go test -json` and reports what was run: each test with its time as it ends,
// the output of those that fail, and at the end the skipped tests, the packages, and a total.
//
// It exits with 1 if anything failed, if no test was run, or, with CI set in the environment, if a test was skipped. A
// test whose name begins with TestLong and whose skip reason names `make test-long` may be skipped unless
// SLIPWAY_TEST_LONG is set; likewise TestSoak, `make test-soak` and SLIPWAY_TEST_SOAK, and without SLIPWAY_TEST_STACK
// any test whose skip reason names `make test`. The report ends with the ten slowest tests.
//
// With -again FILE and no other failure, it writes the failed tests to the file if they are few, as lines of a package
// and a pattern for go test's -run, so that they can be run once more alone on the machine. Otherwise the file is left
// empty.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	again := flag.String("again", "", "file for the tests that should run a second time")
	flag.Parse()
	r := newReport(os.Stdout, policy{CI: os.Getenv("CI") != "", Stack: os.Getenv("SLIPWAY_TEST_STACK") != "",
		Long: os.Getenv("SLIPWAY_TEST_LONG") != "", Soak: os.Getenv("SLIPWAY_TEST_SOAK") != ""})
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		r.line(in.Bytes())
	}
	if err := in.Err(); err != nil {
		fmt.Fprintln(os.Stderr, "testreport: read the test output:", err)
		os.Exit(1)
	}
	ok := r.finish(time.Now())
	if *again != "" {
		if err := os.WriteFile(*again, []byte(strings.Join(r.rerunLines(), "")), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, "testreport: write the failed tests:", err)
		}
	}
	if !ok {
		os.Exit(1)
	}
}
