package v1beta1

import (
	"encoding/json"
	"fmt"
)

// UnmarshalJSON accepts "duration: {}" as an absent duration, because the API specification prints it that way.
func (p *RolloutPause) UnmarshalJSON(text []byte) error {
	var raw struct {
		Duration json.RawMessage `json:"duration"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return fmt.Errorf("pause must be an object with a duration in seconds: %w", err)
	}
	p.Duration = nil
	if len(raw.Duration) == 0 || string(raw.Duration) == "null" {
		return nil
	}
	var empty struct{}
	if raw.Duration[0] == '{' {
		return json.Unmarshal(raw.Duration, &empty)
	}
	return json.Unmarshal(raw.Duration, &p.Duration)
}
