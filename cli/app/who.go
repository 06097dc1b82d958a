package app

import (
	"os/user"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
)

// Who says in whose name a command acts, and why.
type Who struct {
	Actor, Reason string
}

// Flags adds the flags that say who acts, and why.
func (w *Who) Flags(command *cobra.Command) {
	command.Flags().StringVar(&w.Actor, "actor", "", "in whose `name` to act; it is recorded (default: the operating system's user)")
	command.Flags().StringVarP(&w.Reason, "reason", "m", "", "why; it is recorded, and shown in the report")
}

// Name is the actor, by default the operating system's user.
func (w *Who) Name() string {
	if actor := strings.TrimSpace(w.Actor); actor != "" {
		return actor
	}
	if current, err := user.Current(); err == nil {
		return current.Username
	}
	return ""
}

// KeyOrRandom is the idempotency key, a random one unless the caller has chosen.
func KeyOrRandom(chosen string) string {
	if chosen != "" {
		return chosen
	}
	return uuid.NewString()
}

// Via tells the API that the person came through the command line.
func Via() *client.Via {
	cli := client.FrontDoorCLI
	return &cli
}
