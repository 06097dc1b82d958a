-- Istio VirtualService: every route to the stable Service is divided between it and the canary. Each match gets a
-- rule of its own, put before the rule that it narrows.
local spec = obj.data.spec
local same = obj.stableService == obj.canaryService

local function copy(value)
  if type(value) ~= "table" then
    return value
  end
  local out = {}
  for k, v in pairs(value) do
    out[k] = copy(v)
  end
  return setmetatable(out, getmetatable(value))
end

-- Reports whether a host is the stable Service of this namespace: "order", "order.shop",
-- "order.shop.svc.cluster.local".
local function is_stable(route)
  local host = route.destination and route.destination.host or ""
  local first, rest = string.match(host, "^([^.]+)%.?(.*)$")
  if first ~= obj.stableService then
    return false
  end
  local namespace = string.match(rest, "^([^.]+)")
  return not namespace or not obj.namespace or obj.namespace == "" or namespace == obj.namespace
end

local function rename(route)
  if same then
    route.destination.subset = "canary"
  else
    route.destination.host = string.gsub(route.destination.host, "^[^.]+", function() return obj.canaryService end)
    route.destination.subset = nil
  end
  return route
end

-- The step's headers are applied after those that the rule or route sets itself.
local function modify(target)
  local asked = obj.requestHeaderModifier
  if not asked then
    return
  end
  target.headers = target.headers or {}
  target.headers.request = target.headers.request or {}
  local request = target.headers.request
  for _, name in ipairs(asked.remove or {}) do
    if request.set then request.set[name] = nil end
    if request.add then request.add[name] = nil end
    request.remove = request.remove or {}
    request.remove[#request.remove + 1] = name
  end
  for _, part in ipairs({ "set", "add" }) do
    for _, header in ipairs(asked[part] or {}) do
      request[part] = request[part] or {}
      request[part][header.name] = header.value
    end
  end
end

local function divisor(a, b)
  while b ~= 0 do
    local rest = a % b
    a = b
    b = rest
  end
  return a
end

local found = false

local function by_weight(rule, http)
  local routes, weights, common = {}, {}, 0
  local function put(route, weight)
    routes[#routes + 1] = route
    weights[#routes] = weight
    common = divisor(common, weight)
  end
  local ours = false
  for _, route in ipairs(rule.route or {}) do
    ours = ours or is_stable(route)
  end
  if not ours then
    return
  end
  found = true
  for _, route in ipairs(rule.route) do
    local own = #rule.route == 1 and 1 or route.weight or 0
    if is_stable(route) then
      put(route, own * obj.stableWeight)
      local canary = rename(copy(route))
      if http then
        modify(canary)
      elseif obj.requestHeaderModifier then
        refuse("requestHeaderModifier", "a VirtualService cannot change headers of its tcp and tls routes")
      end
      put(canary, own * obj.canaryWeight)
    else
      put(route, own * 100)
    end
  end
  if common == 0 or #routes == 2 and weights[1] + weights[2] == 100 then
    common = 1
  end
  for i, route in ipairs(routes) do
    route.weight = weights[i] / common
  end
  rule.route = routes
end

local words = { Exact = "exact", PathPrefix = "prefix", RegularExpression = "regex" }

local function as_string_match(asked)
  return { [words[asked.type] or "exact"] = asked.value }
end

local function begins(text, start)
  return string.sub(text, 1, #start) == start
end

-- Returns a match that meets both of two string matches, nil if none does.
local function both(own, asked, here)
  if not own or own.prefix == "/" then
    return asked
  end
  if asked.prefix == "/" then
    return own
  end
  if own.regex or asked.regex then
    if own.regex == asked.regex then
      return own
    end
    refuse(here, "the VirtualService compares the same value by an expression already, or the step does: the two cannot be combined")
  end
  if own.exact and asked.exact then
    return own.exact == asked.exact and own or nil
  end
  if own.exact then
    return asked.prefix and begins(own.exact, asked.prefix) and own or nil
  end
  if asked.exact then
    return own.prefix and begins(asked.exact, own.prefix) and asked or nil
  end
  if begins(asked.prefix or "", own.prefix or "") then
    return asked
  end
  return begins(own.prefix or "", asked.prefix or "") and own or nil
end

-- Adds the requested headers or query parameters to a match; returns false if no request can meet both.
local function narrow(match, field, asked, here)
  for j, value in ipairs(asked or {}) do
    match[field] = match[field] or {}
    local name = field == "headers" and string.lower(value.name) or value.name
    local met = both(match[field][name], as_string_match(value), here .. "." .. field .. "[" .. (j - 1) .. "]")
    if not met then
      return false
    end
    match[field][name] = met
  end
  return true
end

local function narrowed(own, asked, here)
  local match = copy(own)
  if asked.path then
    match.uri = both(match.uri, as_string_match(asked.path), here .. ".path")
    if not match.uri then
      return nil
    end
  end
  if narrow(match, "headers", asked.headers, here) and narrow(match, "queryParams", asked.queryParams, here) then
    return match
  end
  return nil
end

local function by_matches()
  local rules = {}
  for _, rule in ipairs(spec.http or {}) do
    local stable
    for _, route in ipairs(rule.route or {}) do
      stable = stable or is_stable(route) and route
    end
    if stable then
      local matches = {}
      for _, own in ipairs(rule.match or { {} }) do
        for i, asked in ipairs(obj.matches) do
          matches[#matches + 1] = narrowed(own, asked, "matches[" .. (i - 1) .. "]")
        end
      end
      if #matches > 0 then
        found = true
        local canary = copy(rule)
        canary.name = nil
        canary.match = matches
        local route = rename(copy(stable))
        route.weight = nil
        canary.route = { route }
        modify(canary)
        rules[#rules + 1] = canary
      end
    end
    rules[#rules + 1] = rule
  end
  spec.http = rules
end

if obj.matches and #obj.matches > 0 then
  by_matches()
  if not found then
    refuse("matches", "the VirtualService has no http rule to Service " .. obj.stableService .. " that a request of the step's matches could meet")
  end
else
  if obj.canaryWeight >= 0 then
    for _, rule in ipairs(spec.http or {}) do
      by_weight(rule, true)
    end
    for _, kind in ipairs({ "tcp", "tls" }) do
      for _, rule in ipairs(spec[kind] or {}) do
        by_weight(rule, false)
      end
    end
    if not found then
      refuse("", "the VirtualService has no route to Service " .. obj.stableService)
    end
  end
end

return obj.data
