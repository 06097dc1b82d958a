package serving

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// Numbers are allocated from lowestAllocated up to, but without, endAllocated.
const (
	lowestAllocated = 20000
	endAllocated    = 32767
)

// maxPorts is how many ports a party's pod may have: far fewer than there are numbers to allocate, so that each finds one.
const maxPorts = 256

// maxRounds ends the search for a free number. With at most maxPorts ports a handful of rounds is enough.
const maxRounds = 1000

// containerPorts are the ports of all containers in the order of the template, with the defaults of the kind and without their allocated numbers.
func containerPorts(t kuscia.DeployTemplate) []kuscia.ContainerPort {
	var ports []kuscia.ContainerPort
	for _, c := range t.Spec.Containers {
		for _, p := range c.Ports {
			if p.Protocol == "" {
				p.Protocol = kuscia.ProtocolHTTP
			}
			if p.Scope == "" {
				p.Scope = kuscia.ScopeLocal
			}
			ports = append(ports, p)
		}
	}
	return ports
}

// allocate gives each port without a number one. It depends on the serving, the party and the
// port's name alone, so that a port keeps its number in every version of the serving: each port has an endless list of choices of its own and takes
// the first that is free. Two ports that choose the same number in the same round are the exception: the lesser name has it, the other chooses again.
func allocate(id string, party kuscia.Party, ports []kuscia.ContainerPort) {
	taken := map[int32]bool{}
	var pending []*kuscia.ContainerPort
	for i := range ports {
		if ports[i].Port != 0 {
			taken[ports[i].Port] = true
		} else {
			pending = append(pending, &ports[i])
		}
	}
	slices.SortStableFunc(pending, func(a, b *kuscia.ContainerPort) int { return strings.Compare(a.Name, b.Name) })
	for round := 0; len(pending) > 0 && round < maxRounds; round++ {
		var losers []*kuscia.ContainerPort
		for _, p := range pending {
			choice := portChoice(id, party, p.Name, round)
			if taken[choice] {
				losers = append(losers, p)
				continue
			}
			taken[choice] = true
			p.Port = choice
		}
		pending = losers
	}
}

// portChoice is the number that a port would have in that round.
func portChoice(id string, party kuscia.Party, port string, round int) int32 {
	key := strings.Join([]string{id, party.DomainID, party.Role, port, strconv.Itoa(round)}, "\x00")
	sum := sha256.Sum256([]byte(key))
	return lowestAllocated + int32(binary.BigEndian.Uint64(sum[:8])%(endAllocated-lowestAllocated))
}
