package plan

import (
	"encoding/json"
	"fmt"
	"regexp"
)

var jsonInteger = regexp.MustCompile(`^-?[0-9]+$`)

// UnmarshalJSON takes a text, or a whole number in the very spelling of the document.
func (id *ServiceID) UnmarshalJSON(data []byte) error {
	switch {
	case string(data) == "null":
		return nil // as for every other type; whoever needs an ID refuses the empty one
	case len(data) > 0 && data[0] == '"':
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		*id = ServiceID(text)
		return nil
	case jsonInteger.Match(data):
		*id = ServiceID(data)
		return nil
	}
	return fmt.Errorf("serviceId must be a whole number or text, not %s: if that is the name, put it in quotes", data)
}
