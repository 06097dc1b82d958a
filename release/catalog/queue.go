package catalog

// PartyQueue is the Temporal task queue of a party that names none of its own (design §4).
func PartyQueue(party string) string { return "slipway.party." + party }
