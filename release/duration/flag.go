package duration

import (
	"fmt"
	"time"
)

// Flag is the value of a flag that takes a duration.
type Flag time.Duration

// Set reads the flag.
func (f *Flag) Set(text string) error {
	d, err := Parse(text)
	if err != nil {
		return fmt.Errorf("%q is not a duration: use, for example, %s", text, Examples)
	}
	*f = Flag(d)
	return nil
}

// String returns the value; none is "0", which the help doesn't print as a default.
func (f *Flag) String() string {
	if *f == 0 {
		return "0"
	}
	return time.Duration(*f).String()
}

// Type is the placeholder of the value in the help.
func (f *Flag) Type() string { return "duration" }
