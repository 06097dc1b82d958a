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

// apiTLS is the TLS configuration of the HTTP API; without a Config it serves plain HTTP.
type apiTLS struct{ *tls.Config }

// apiName is the name of the HTTP API in errors.
const apiName = "the HTTP API"

// newGuard returns the access rules of the HTTP API. All other listeners of this process use its rules for hosts and
// origins.
func newGuard(s settings.Settings) (auth.Guard, error) {
	guard := auth.Guard{
		Hosts: auth.NewHosts([]string{s.Listen, s.KusciaListen, s.KusciaGRPCListen, s.MetricsListen},
			s.AllowedHosts),
		Certificate: s.APICAFile != "",
	}
	if s.APITokenFile == "" {
		return guard, nil
	}
	var err error
	if guard.Token, err = auth.LoadToken(apiName, s.APITokenFile); err != nil {
		return guard, fmt.Errorf("--api-token-file: %w", err)
	}
	return guard, nil
}

// newAPITLS reads the certificates of the HTTP API. TLS verifies a client certificate if there is one. The guard
// requires it, because health probes have none.
func newAPITLS(s settings.Settings) (apiTLS, error) {
	if err := checkAPI(s); err != nil || s.APICertFile == "" {
		return apiTLS{}, err
	}
	config, err := auth.LoadTLS(apiName, s.APICertFile, s.APIKeyFile, s.APICAFile, tls.VerifyClientCertIfGiven)
	return apiTLS{config}, err
}

// checkAPI rejects incomplete settings, and an address other than loopback without authentication.
func checkAPI(s settings.Settings) error {
	switch {
	case (s.APICertFile == "") != (s.APIKeyFile == ""):
		return errors.New("--api-cert-file and --api-key-file must be set together")
	case s.APICAFile != "" && s.APICertFile == "":
		return errors.New("--api-ca-file requires TLS: set --api-cert-file and --api-key-file too")
	case !isLoopback(s.Listen) && s.APITokenFile == "" && s.APICAFile == "":
		return fmt.Errorf("--listen %s is reachable from other machines without authentication: set --api-token-file "+
			"(the file is created if it "+
			"does not exist), or --api-cert-file, --api-key-file and --api-ca-file for client certificates, or "+
			"listen on 127.0.0.1", s.Listen)
	}
	return nil
}

func newKusciaSecurity(s settings.Settings, guard auth.Guard) (kuscia.Security, error) {
	if err := checkKuscia(s); err != nil {
		return kuscia.Security{}, err
	}
	files := kuscia.Files{Certificate: s.KusciaCertFile, Key: s.KusciaKeyFile, CA: s.KusciaCAFile,
		Token: s.KusciaTokenFile}
	security, err := kuscia.LoadSecurity(kuscia.Protocol(s.KusciaProtocol), files)
	if err != nil {
		return kuscia.Security{}, fmt.Errorf("--kuscia-protocol %s: %w", s.KusciaProtocol, err)
	}
	security.Hosts = guard.Hosts
	return security, nil
}

// checkKuscia rejects missing and unused files for the protocol, and an address other than loopback without
// authentication.
func checkKuscia(s settings.Settings) error {
	protocol := kuscia.Protocol(s.KusciaProtocol)
	for _, file := range []struct {
		name, path string
		needed     bool
	}{
		{"kuscia-cert-file", s.KusciaCertFile, protocol != kuscia.NOTLS},
		{"kuscia-key-file", s.KusciaKeyFile, protocol != kuscia.NOTLS},
		{"kuscia-ca-file", s.KusciaCAFile, protocol == kuscia.MTLS},
		{"kuscia-token-file", s.KusciaTokenFile, protocol != kuscia.NOTLS},
	} {
		switch {
		case file.needed && file.path == "":
			return fmt.Errorf("--kuscia-protocol %s needs --%s", protocol, file.name)
		case !file.needed && file.path != "":
			return fmt.Errorf("--%s is not used with --kuscia-protocol %s: remove it, or choose another protocol",
				file.name, protocol)
		}
	}
	if protocol != kuscia.NOTLS || s.KusciaInsecure {
		return nil
	}
	for _, listen := range []struct{ name, address string }{{"kuscia-listen", s.KusciaListen},
		{"kuscia-grpc-listen", s.KusciaGRPCListen}} {
		if listen.address != "" && !isLoopback(listen.address) {
			return fmt.Errorf("--%s %s is reachable from other machines, and --kuscia-protocol NOTLS has no "+
				"authentication: choose "+
				"TLS or MTLS, "+
				"listen on 127.0.0.1, or set --kuscia-insecure", listen.name, listen.address)
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
