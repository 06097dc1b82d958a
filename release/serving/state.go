package serving

import (
	"time"

	"slipway.io/slipway/release/audit"
)

// State is what an operation remembers beside its Input when its workflow continues as new. It is only ever extended.
type State struct {
	Stage   Stage        `json:"stage"`
	Parties []PartyState `json:"parties"`
	// Began is when the operation began, Committed its commit: who is absent before that changes nothing, who is absent after it has all go
	// back.
	Began     time.Time `json:"began"`
	Committed time.Time `json:"committed,omitzero"`
	// Inherited: the operation before this one wasn't over when it gave way: parties may run something else than the former version.
	Inherited bool `json:"inherited,omitempty"`
	// WentBack: the parties were told to go back, for this reason.
	WentBack bool   `json:"wentBack,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message,omitempty"`
	// Superseded says by what, "" when by nothing.
	Superseded string `json:"superseded,omitempty"`
	// Paused is who holds the operation; nil when nobody does.
	Paused *Hold     `json:"paused,omitempty"`
	Log    audit.Log `json:"log"`
}

// Hold is a pause: who asked for it, and since when it lasts.
type Hold struct {
	By    string    `json:"by"`
	Since time.Time `json:"since"`
}

// PartyState is what is known of one party.
type PartyState struct {
	// Which steps are done.
	Prepared bool `json:"prepared,omitempty"`
	Applied  bool `json:"applied,omitempty"`
	Back     bool `json:"back,omitempty"`
	Removed  bool `json:"removed,omitempty"`
	// Failed is why the party failed at what is asked.
	Failed string `json:"failed,omitempty"`
	// Owing is why the last try at what is owed, to go back or to remove, failed. It is tried again.
	Owing string `json:"owing,omitempty"`
	// WorkerUnreachable is why the party's worker cannot be reached, and since when; "" when it can.
	WorkerUnreachable      string    `json:"away,omitempty"`
	WorkerUnreachableSince time.Time `json:"since,omitzero"`
	// ClusterUnreachable is why its cluster cannot be reached by its worker, and since when; "" when it can.
	ClusterUnreachable      string    `json:"lost,omitempty"`
	ClusterUnreachableSince time.Time `json:"lostSince,omitzero"`
	// Completed is when everything was seen in its place.
	Completed time.Time `json:"completed,omitzero"`
	// Begun says that it was told to apply the version. Before that, Asked is since when an approval is waited for, Approved that there is
	// one, and Freed when a person last let the operation go on.
	Begun    bool      `json:"begun,omitempty"`
	Approved bool      `json:"approved,omitempty"`
	Asked    time.Time `json:"asked,omitzero"`
	Freed    time.Time `json:"freed,omitzero"`
	// Tries is how often in a row a step failed; it is not tried again before Again.
	Tries int       `json:"tries,omitempty"`
	Again time.Time `json:"again,omitzero"`
}
