package kuscia

import (
	"crypto/tls"
	"crypto/x509"

	"slipway.io/slipway/api/auth"
)

// Protocol is the protection of Kuscia's API.
type Protocol string

// The protocols.
const (
	// NOTLS: no TLS and no token; for loopback only.
	NOTLS Protocol = "NOTLS"
	// TLS: TLS and a token.
	TLS Protocol = "TLS"
	// MTLS: TLS, a token and client certificates.
	MTLS Protocol = "MTLS"
)

// Security holds the settings that protect Kuscia's API. The zero Security is NOTLS on a loopback address.
type Security struct {
	// TLS is nil for NOTLS.
	TLS *tls.Config
	// Token is required of every request.
	Token auth.Token
	// Hosts are the host names that requests may be addressed to.
	Hosts auth.Hosts
}

// guard returns the checks before the token, which Kuscia's clients send in a header of their own.
func (s Security) guard() auth.Guard { return auth.Guard{Hosts: s.Hosts} }

// authorities returns the CAs of accepted client certificates; nil: none is required.
func (s Security) authorities() *x509.CertPool {
	if s.TLS == nil {
		return nil
	}
	return s.TLS.ClientCAs
}

// Files are the paths of a Security's parts.
type Files struct {
	// Certificate and Key belong to the listener, CA verifies client certificates, Token contains the token.
	Certificate, Key, CA, Token string
}

// thisAPI names the API in errors.
const thisAPI = "Kuscia's API"

// LoadSecurity reads the files of a protocol. It creates a missing token file.
func LoadSecurity(protocol Protocol, files Files) (Security, error) {
	if protocol == NOTLS {
		return Security{}, nil
	}
	ca := ""
	if protocol == MTLS {
		ca = files.CA
	}
	config, err := auth.LoadTLS(thisAPI, files.Certificate, files.Key, ca, tls.RequireAndVerifyClientCert)
	if err != nil {
		return Security{}, err
	}
	token, err := auth.LoadToken(thisAPI, files.Token)
	return Security{TLS: config, Token: token}, err
}
