package catalog

// EngineQueue is the Temporal task queue of all workflows and of the centre's own activities. No party has it.
const EngineQueue = "slipway"

// PartyQueue is the Temporal task queue of a party that names none of its own.
func PartyQueue(party string) string { return "slipway.party." + party }
