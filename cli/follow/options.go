package follow

import (
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/cli/app"
)

// Options say when a watch ends before the release does.
type Options struct {
	Timeout                                         time.Duration
	ExitOnInterrupted, ExitOnPaused, ThroughFailure bool
	// Watch is --watch of a command that starts a release.
	Watch bool

	names []string
}

// Words are what the help says of a kind of release.
type Words struct {
	// Noun is what one is called, and End where a watch of it ends: "to its end".
	Noun, End string
	// Interrupted and Paused are the states in which a watch may end: "the task is Paused".
	Interrupted, Paused string
	// Failed is why a watch goes on when the release has failed; "" where it cannot.
	Failed string
}

// Flags adds the flags of a watch.
func (o *Options) Flags(command *cobra.Command, w Words) {
	f := command.Flags()
	o.names = []string{"timeout", "exit-on-interrupted", "exit-on-paused"}
	f.DurationVar(&o.Timeout, "timeout", 0, "how long to follow at most, such as 30m; the "+w.Noun+" goes on. 0: "+w.End)
	f.BoolVar(&o.ExitOnInterrupted, "exit-on-interrupted", false, "end with exit code 4 when "+w.Interrupted)
	f.BoolVar(&o.ExitOnPaused, "exit-on-paused", false, "end with exit code 5 when "+w.Paused)
	if w.Failed != "" {
		o.names = append(o.names, "through-failure")
		f.BoolVar(&o.ThroughFailure, "through-failure", false, "go on when it has Failed: "+w.Failed)
	}
}

// StartFlags adds --watch and the flags of a watch to a command that starts a release.
func (o *Options) StartFlags(command *cobra.Command, w Words) {
	command.Flags().BoolVarP(&o.Watch, "watch", "w", false, "follow the "+w.Noun+" "+w.End)
	o.Flags(command, w)
}

// Check refuses options of a watch without --watch.
func (o *Options) Check(command *cobra.Command) error {
	for _, name := range o.names {
		if command.Flags().Changed(name) && !o.Watch {
			return app.Usagef("--%s means nothing without --watch", name)
		}
	}
	return nil
}
