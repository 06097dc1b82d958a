package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
)

// timedTest is a test or subtest without subtests of its own, with its duration. The duration of a test with parallel
// subtests does not contain theirs, so only the subtests are listed.
type timedTest struct {
	name    string
	seconds float64
}

// printSlowest prints the slowest tests at the end of a run.
func (r *report) printSlowest() {
	slices.SortStableFunc(r.timed, func(a, b timedTest) int { return cmp.Compare(b.seconds, a.seconds) })
	for i, test := range r.timed[:min(slowest, len(r.timed))] {
		fmt.Fprintf(r.out, "slowest %2d  %6.1fs  %s\n", i+1, test.seconds, test.name)
	}
}

// covers matches the line that harness.Covered logs.
var covers = regexp.MustCompile(`covered: (\d+) (.+)\n`)

// countCovered adds up the logged coverage of a test.
func (r *report) countCovered(lines []string) {
	for _, line := range lines {
		found := covers.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		n, err := strconv.Atoi(found[1])
		if err == nil {
			r.covered[found[2]] += n
		}
	}
}
