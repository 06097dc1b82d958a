package app

import (
	"os/user"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
)

// Who says in whose name a command acts, why, and by which idempotency key.
type Who struct {
	Actor, Reason, Key string
}

// Flags adds the flags that say who acts, and why; and --key, with what it is good for.
func (w *Who) Flags(command *cobra.Command, key string) {
	f := command.Flags()
	f.StringVar(&w.Actor, "actor", "", "in whose `name` to act; it is recorded (default: the operating system's user)")
	f.StringVarP(&w.Reason, "reason", "m", "", "why; it is recorded, and shown in the report")
	f.StringVar(&w.Key, "key", "", key+" (default: a random one)")
}

// Complete chooses the actor and the key where nobody has: the operating system's user, and a random key.
func (w *Who) Complete() {
	if w.Key == "" {
		w.Key = uuid.NewString()
	}
	if w.Actor = strings.TrimSpace(w.Actor); w.Actor != "" {
		return
	}
	if current, err := user.Current(); err == nil {
		w.Actor = current.Username
	}
}
