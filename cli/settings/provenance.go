package settings

import (
	"encoding/json"
	"fmt"
)

// SourceKind says what sort of place a value came from.
type SourceKind string

// The places, in order of precedence.
const (
	FromFlag    SourceKind = "flag"
	FromEnv     SourceKind = "env"
	FromFile    SourceKind = "file"
	FromDefault SourceKind = "default"
)

// Source is where a value came from.
type Source struct {
	Kind SourceKind
	// Name is the flag with its dashes, the environment variable, or the file's path.
	Name string
	// Line is the line in the file.
	Line int
}

// String reads "flag --listen", "env SLIPWAY_LISTEN", "file slipway.yaml:3" or "default".
func (s Source) String() string {
	switch s.Kind {
	case FromFile:
		return fmt.Sprintf("file %s:%d", s.Name, s.Line)
	case FromFlag, FromEnv:
		return string(s.Kind) + " " + s.Name
	}
	return string(s.Kind)
}

// MarshalJSON writes the source as its String.
func (s Source) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// Entry is one setting with its value as text and where that came from.
type Entry struct {
	Name        string `json:"name"`
	Value       string `json:"value"`
	Source      Source `json:"source"`
	Env         string `json:"env"`
	Description string `json:"description"`
}

// Provenance says where each setting of a command came from, in the order of the documentation.
type Provenance struct {
	Entries []Entry `json:"settings"`
	// File is the configuration file; empty: none was named.
	File string `json:"file,omitempty"`
	// UnknownEnv are environment variables that start with SLIPWAY_ and are no setting.
	UnknownEnv []string `json:"unknownEnv,omitempty"`
}
