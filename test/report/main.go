// Command testreport reads what `go test -json` writes and says what was run: each test with its time as it ends, the
// output of those that fail, and at the end what was skipped, the packages, and a total.
//
// It exits with 1 if anything failed, if nothing was run, or, with CI set in the environment, if a test was skipped. A test whose name begins with
// TestLong and whose reason to skip names `make test-long` may be skipped unless SLIPWAY_TEST_LONG is set; TestSoak, `make test-soak` and
// SLIPWAY_TEST_SOAK likewise, and without SLIPWAY_TEST_STACK any test whose reason to skip names `make test`. It ends with the ten slowest tests.
//
// With -again FILE it writes down, where nothing else went wrong, the few tests that failed, as lines of a package and a pattern for go
// test's -run, so that they can be run once more with the machine to themselves. Otherwise the file is left empty.
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
	again := flag.String("again", "", "where to write the tests that deserve a second run")
	flag.Parse()
	r := newReport(os.Stdout, policy{CI: os.Getenv("CI") != "", Stack: os.Getenv("SLIPWAY_TEST_STACK") != "", Long: os.Getenv("SLIPWAY_TEST_LONG") != "", Soak: os.Getenv("SLIPWAY_TEST_SOAK") != ""})
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
		if err := os.WriteFile(*again, []byte(strings.Join(r.again(), "")), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, "testreport: write down what failed:", err)
		}
	}
	if !ok {
		os.Exit(1)
	}
}
