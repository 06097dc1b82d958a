package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/kuscia"
	"slipway.io/slipway/cli/settings"
)

// apiTLS is how the HTTP API is encrypted; without a Config it isn't.
type apiTLS struct{ *tls.Config }

// thisAPI is the HTTP API in errors.
const thisAPI = "the HTTP API"

// newGuard decides who reaches the HTTP API and, as far as hosts and sites of other pages go, every other listener of this process.
func newGuard(s settings.Settings) (auth.Guard, error) {
	guard := auth.Guard{
		Hosts:       auth.NewHosts([]string{s.Listen, s.KusciaListen, s.KusciaGRPCListen, s.MetricsListen}, s.AllowedHosts),
		Certificate: s.APICAFile != "",
	}
	if s.APITokenFile == "" {
		return guard, nil
	}
	var err error
	if guard.Token, err = auth.LoadToken(thisAPI, s.APITokenFile); err != nil {
		return guard, fmt.Errorf("--api-token-file: %w", err)
	}
	return guard, nil
}

// newAPITLS reads the certificates of the HTTP API. A client's is checked if it shows one; whether it has to is the guard's matter, since
// probes of health show none.
func newAPITLS(s settings.Settings) (apiTLS, error) {
	if err := checkAPI(s); err != nil || s.APICertFile == "" {
		return apiTLS{}, err
	}
	config, err := auth.LoadTLS(thisAPI, s.APICertFile, s.APIKeyFile, s.APICAFile, tls.VerifyClientCertIfGiven)
	return apiTLS{config}, err
}

// checkAPI refuses files that are of no use without others, and an address that others can reach if nothing is asked of them.
func checkAPI(s settings.Settings) error {
	switch {
	case (s.APICertFile == "") != (s.APIKeyFile == ""):
		return errors.New("--api-cert-file and --api-key-file belong together: give both, or neither")
	case s.APICAFile != "" && s.APICertFile == "":
		return errors.New("--api-ca-file asks clients for certificates, which takes TLS: give --api-cert-file and --api-key-file too")
	case !isLoopback(s.Listen) && s.APITokenFile == "" && s.APICAFile == "":
		return fmt.Errorf("--listen %s can be reached by others, and anybody could release: give --api-token-file (the file is made when it "+
			"does not exist), or --api-cert-file, --api-key-file and --api-ca-file for client certificates, or listen on 127.0.0.1", s.Listen)
	}
	return nil
}

func newKusciaSecurity(s settings.Settings, guard auth.Guard) (kuscia.Security, error) {
	if err := checkKuscia(s); err != nil {
		return kuscia.Security{}, err
	}
	files := kuscia.Files{Certificate: s.KusciaCertFile, Key: s.KusciaKeyFile, CA: s.KusciaCAFile, Token: s.KusciaTokenFile}
	security, err := kuscia.LoadSecurity(kuscia.Protocol(s.KusciaProtocol), files)
	if err != nil {
		return kuscia.Security{}, fmt.Errorf("--kuscia-protocol %s: %w", s.KusciaProtocol, err)
	}
	security.Hosts = guard.Hosts
	return security, nil
}

// checkKuscia refuses files that the protocol needs and does not have or would ignore, and an open door that nobody has asked for.
func checkKuscia(s settings.Settings) error {
	protocol := kuscia.Protocol(s.KusciaProtocol)
	for _, file := range []struct {
		name, path string
		needed     bool
	}{
		{"kuscia-cert-file", s.KusciaCertFile, protocol != kuscia.NOTLS}, {"kuscia-key-file", s.KusciaKeyFile, protocol != kuscia.NOTLS},
		{"kuscia-ca-file", s.KusciaCAFile, protocol == kuscia.MTLS}, {"kuscia-token-file", s.KusciaTokenFile, protocol != kuscia.NOTLS},
	} {
		switch {
		case file.needed && file.path == "":
			return fmt.Errorf("--kuscia-protocol %s needs --%s", protocol, file.name)
		case !file.needed && file.path != "":
			return fmt.Errorf("--%s is not used with --kuscia-protocol %s: leave it out, or choose another protocol", file.name, protocol)
		}
	}
	if protocol != kuscia.NOTLS || s.KusciaInsecure {
		return nil
	}
	for _, listen := range []struct{ name, address string }{{"kuscia-listen", s.KusciaListen}, {"kuscia-grpc-listen", s.KusciaGRPCListen}} {
		if listen.address != "" && !isLoopback(listen.address) {
			return fmt.Errorf("--%s %s can be reached by others, and with --kuscia-protocol NOTLS anybody could change servings: choose "+
				"TLS or MTLS, "+
				"listen on 127.0.0.1, or say --kuscia-insecure", listen.name, listen.address)
		}
	}
	return nil
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
